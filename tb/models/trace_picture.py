"""Pictures of a recorded run: the roofline, and the array's use over time."""

import io
from collections.abc import Iterable, Sequence

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from celosia.arch.config import Config
from celosia.sim.report import CAUSES
from celosia.tb.machine.recording import Recording
from celosia.tb.models.cycles_by_operation import Operation

mpl.use("Agg")

CAUSE_COLOURS = {
    "compute": "#2a9d5c",
    "memory": "#d1495b",
    "dependency": "#edae49",
    "fill": "#5b8fc9",
    "idle": "#e3e3e3",
}
"""A colour for each cause on which the array's cycles are spent."""

_LABELLED = 0.018
"""Share of the picture's width from which on an operation is labelled."""


def colours(kinds: Iterable[str]) -> dict[str, tuple[float, ...]]:
    """Return a colour for each kind of operation, a dictionary from kind to RGBA values."""
    palette = mpl.colormaps["tab20"]
    return {kind: palette(index % 20) for index, kind in enumerate(dict.fromkeys(kinds))}


def roofline(done: Sequence[Operation], config: Config, title: str) -> Figure:
    """Return a roofline plot of operations: products per cycle over products per external byte.

    The line is the limit by the array and by the memory port. If an operation needs no load, since
    its weights are on the chip already, its dot may be above the line. Dots without external
    traffic are at the right edge.
    """
    figure = Figure(figsize=(9, 5.2), layout="constrained")
    axes = figure.subplots()
    shown = [operation for operation in done if operation.macs and operation.cycles]
    paints = colours(operation.kind for operation in done)
    total = sum(operation.cycles for operation in done)
    ridge = config.elements / config.mem_bytes
    intensities = [o.macs / (o.loaded + o.stored) for o in shown if o.loaded + o.stored]
    low = min([ridge / 8, *intensities]) / 2
    high = max([ridge * 8, *intensities]) * 4
    x = np.array([low, ridge, high])
    axes.plot(x, np.minimum(x * config.mem_bytes, config.elements), color="black", linewidth=1.5)
    axes.annotate(
        f"array: {config.array.rows} x {config.array.cols} = {config.elements} products per cycle",
        (high, config.elements),
        (-4, 4),
        textcoords="offset points",
        horizontalalignment="right",
    )
    axes.annotate(
        f"port: {config.mem_bytes} bytes per cycle",
        (ridge / 2, ridge / 2 * config.mem_bytes),
        (-6, 6),
        textcoords="offset points",
        horizontalalignment="right",
    )
    for kind in dict.fromkeys(operation.kind for operation in shown):
        paint = paints[kind]
        same = [operation for operation in shown if operation.kind == kind]
        for marker, free in (("o", False), (">", True)):
            part = [o for o in same if (o.loaded + o.stored == 0) == free]
            places = [o.macs / (o.loaded + o.stored) if not free else high / 1.2 for o in part]
            rates = [o.macs / o.cycles for o in part]
            label = f"{kind} (no external bytes)" if free else kind
            if part:
                axes.scatter(
                    places,
                    rates,
                    [30 + 300 * o.cycles / total for o in part],
                    [paint],
                    marker=marker,
                    edgecolors="black",
                    linewidths=0.5,
                    label=label,
                    zorder=3,
                )
    axes.set_xscale("log", base=2)
    axes.set_yscale("log", base=2)
    axes.set_xlim(low, high)
    lowest = min([o.macs / o.cycles for o in shown], default=1)
    axes.set_ylim(min(lowest, config.elements / 64) / 1.5, config.elements * 1.7)
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter(mpl.ticker.FuncFormatter(lambda value, _: f"{value:g}"))
    axes.set_xlabel("products per external byte")
    axes.set_ylabel("products per cycle")
    axes.set_title(
        f"{title}: roofline (area of a dot: its share of the cycles)", fontsize=11, parse_math=False
    )
    axes.grid(which="major", alpha=0.3)
    handles = axes.get_legend_handles_labels()
    if handles[0]:
        figure.legend(*handles, loc="outside right upper", fontsize=8, markerscale=0.6)
    return figure


def utilization(
    recording: Recording,
    done: Sequence[Operation],
    config: Config,
    title: str,
    total: float,
) -> Figure:
    """Return a plot of the array's utilization over the cycles of a run.

    In the upper part, a bar for each operation is the array's utilization (%), and the bar's
    outline includes padding. A dotted line shows ``total``, the utilization in the whole run. The
    lower part shows the share (%) of each activity of the array in windows of cycles.
    """
    figure = Figure(figsize=(12, 6.2), layout="constrained")
    above, below = figure.subplots(2, 1, sharex=True, height_ratios=(3, 2))
    paints = colours(operation.kind for operation in done)
    for operation in done:
        _operation(above, operation, paints[operation.kind], config, recording.cycles)
    _layers(above, done)
    above.axhline(100 * total, color="black", linestyle=":", linewidth=1)
    above.set_ylim(0, 100)
    above.set_ylabel("utilization (%)")
    above.set_title(
        f"{title}: {recording.cycles:,} cycles, utilization {total:.1%} (dotted)",
        fontsize=11,
        pad=22,
        parse_math=False,
    )
    above.legend(
        handles=[mpl.patches.Patch(color=paint, label=kind) for kind, paint in paints.items()],
        loc="center left",
        bbox_to_anchor=(1.0, 0.5),
        fontsize=8,
    )
    _causes(below, recording)
    return figure


def _operation(
    axes: Axes, operation: Operation, paint: tuple[float, ...], config: Config, cycles: int
) -> None:
    if not operation.cycles:
        return
    height = 100 * operation.utilization(config)
    busy = 100 * operation.vectors / operation.cycles
    for begin, end in operation.spans:
        middle, width = (begin + end) / 2, end - begin
        axes.bar(middle, height, width, color=paint, linewidth=0)
        axes.bar(middle, busy, width, fill=False, edgecolor=paint, linewidth=0.8)
    begin, end = max(operation.spans, key=lambda span: span[1] - span[0])
    middle = (begin + end) / 2
    if end - begin >= _LABELLED * cycles:
        axes.text(
            middle,
            2,
            operation.kind,
            rotation=90,
            horizontalalignment="center",
            verticalalignment="bottom",
            fontsize=8,
        )


def _layers(axes: Axes, done: Sequence[Operation]) -> None:
    """Mark the beginning of each layer, and name it above."""
    spans: dict[str, list[int]] = {}
    for operation in done:
        if operation.layer != operation.name:
            for begin, end in operation.spans:
                span = spans.setdefault(operation.layer, [begin, end])
                span[:] = min(span[0], begin), max(span[1], end)
    for name, (begin, end) in spans.items():
        for edge in (begin, end):
            axes.axvline(edge, color="grey", linewidth=0.8)
        axes.annotate(
            name,
            ((begin + end) / 2, 100),
            (0, 4),
            textcoords="offset points",
            horizontalalignment="center",
            fontsize=9,
        )


def _causes(axes: Axes, recording: Recording) -> None:
    starts = np.arange(0, recording.cycles, recording.window)
    widths = np.minimum(recording.window, recording.cycles - starts)
    edges = np.append(starts, recording.cycles)
    bottom = np.zeros(len(starts))
    for label, names in CAUSES.items():
        share = 100 * np.sum([recording.sums[name] for name in names], axis=0) / widths
        paint = CAUSE_COLOURS[label]
        axes.stairs(bottom + share, edges, baseline=bottom, fill=True, color=paint, label=label)
        bottom = bottom + share
    axes.set_ylim(0, 100)
    axes.set_xlim(0, recording.cycles)
    axes.set_ylabel(f"the array's cycles (%)\nin windows of {recording.window}")
    axes.set_xlabel("cycle")
    axes.xaxis.set_major_formatter(mpl.ticker.StrMethodFormatter("{x:,.0f}"))
    axes.legend(loc="center left", bbox_to_anchor=(1.0, 0.5), fontsize=8)


def png(figure: Figure) -> bytes:
    """Return a Matplotlib figure as the bytes of a PNG file."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=130)
    return buffer.getvalue()
