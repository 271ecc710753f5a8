"""A picture of the digits demonstration: recognized images, cycles by activity, and a timeline."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure, SubFigure
from numpy.typing import NDArray

from celosia.arch.errors import InputError
from celosia.arch.isa import Engine
from celosia.sim.report import CAUSES
from celosia.tb.machine.recording import Recording
from celosia.tb.models.trace_picture import CAUSE_COLOURS, colours

mpl.use("Agg")

IMAGES = 14
"""Images that are shown."""

_RIGHT, _WRONG = "#1a7f4b", "#c0392b"


def draw(
    results: Sequence[Mapping[str, Any]],
    images: NDArray[np.floating],
    recording: Recording | None,
    path: Path,
) -> None:
    """Write a PNG file with images of digits, the cycles of each model, and a timeline.

    ``results`` has each model's measurements, and ``images`` [count, 8, 8] are the inputs. The
    timeline shows ``recording``, an inference of the first model, or is absent. Raises
    :class:`InputError` if the file cannot be written.
    """
    clocked = any(result["where"] for result in results)
    heights = [1.35, 1.6 + 0.25 * len(results), 2.6]
    rows = 1 + clocked + (recording is not None)
    figure = Figure(figsize=(11, sum(heights[:rows])), layout="constrained")
    parts = figure.subfigures(rows, 1, height_ratios=heights[:rows], squeeze=False)[:, 0]
    _images(parts[0], results[0], images)
    if clocked:
        _cycles(parts[1].subplots(), results)
    if recording is not None:
        _timeline(parts[-1].subplots(), recording, results[0]["model"])
    beside = path.with_name(f".{path.name}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(beside, format="png", dpi=110)
        os.replace(beside, path)
    except OSError as error:
        raise InputError(f"Cannot write {path}: {error.strerror}") from error


def chosen(predictions: Sequence[int], labels: Sequence[int]) -> list[int]:
    """Return the indices of at most ``IMAGES`` images to show in the picture.

    The list ends with the first four images that have a wrong prediction, or with all such images
    if there are fewer. The list begins with other images, in order from the first image on.
    """
    pairs = enumerate(zip(predictions, labels, strict=True))
    wrong = [index for index, (predicted, label) in pairs if predicted != label][:4]
    others = [index for index in range(len(labels)) if index not in wrong]
    return others[: IMAGES - len(wrong)] + wrong


def _images(figure: SubFigure, result: Mapping[str, Any], images: NDArray[np.floating]) -> None:
    shown = chosen(result["predictions"], result["labels"])
    right = round(result["accuracy"] * result["count"])
    figure.suptitle(
        f"{result['model']} on {result['config']}: {right} of {result['count']} images recognized "
        f"(float: {result['float_accuracy']:.1%}), {result['mismatches']} mismatches with the "
        "golden machine",
        fontsize=11,
    )
    for axes, index in zip(figure.subplots(1, len(shown), squeeze=False)[0], shown, strict=True):
        predicted, label = result["predictions"][index], result["labels"][index]
        axes.imshow(images[index], cmap="gray_r")
        axes.set_xticks([])
        axes.set_yticks([])
        text = f"{predicted}" if predicted == label else f"{predicted}, is {label}"
        axes.set_xlabel(text, fontsize=11, color=_RIGHT if predicted == label else _WRONG)


def _cycles(axes: Axes, results: Sequence[Mapping[str, Any]]) -> None:
    """Draw the array's cycles of an inference of each model, by their causes."""
    names = [result["model"] for result in results]
    left = np.zeros(len(results))
    for cause in CAUSES:
        cycles = np.array([result["where"][cause] / result["count"] for result in results])
        bars = axes.barh(names, cycles, 0.6, left, color=CAUSE_COLOURS[cause], label=cause)
        total = [result["cycles_per_inference"] for result in results]
        percentages = [
            f"{share:.0%}" if share >= 0.03 else ""
            for share in (part / whole for part, whole in zip(cycles, total, strict=True))
        ]
        axes.bar_label(bars, percentages, label_type="center", fontsize=9)
        left += cycles
    axes.invert_yaxis()
    axes.set_xlim(0, left.max() * 1.02)
    axes.xaxis.set_major_formatter(mpl.ticker.StrMethodFormatter("{x:,.0f}"))
    axes.set_xlabel("cycles of an image")
    axes.set_title("What the array's cycles went to", fontsize=11)
    axes.legend(loc="center left", bbox_to_anchor=(1.0, 0.5), fontsize=9, frameon=False)


def _timeline(axes: Axes, recording: Recording, model: str) -> None:
    """Draw each engine's commands, coloured by their opcodes."""
    opcodes = sorted({command.opcode for command in recording.commands})
    paints = colours(opcode.name for opcode in opcodes)
    for opcode in opcodes:
        for engine in Engine:
            spans = [
                (command.begin, command.end - command.begin)
                for command in recording.commands
                if (command.opcode, command.engine) == (opcode, engine)
            ]
            axes.broken_barh(spans, (int(engine) - 0.4, 0.8), color=paints[opcode.name])
    axes.set_yticks([int(engine) for engine in Engine], [engine.name.lower() for engine in Engine])
    axes.set_ylim(len(Engine) - 0.4, -0.6)
    axes.set_xlim(0, recording.cycles)
    axes.xaxis.set_major_formatter(mpl.ticker.StrMethodFormatter("{x:,.0f}"))
    axes.set_xlabel("cycle")
    axes.set_title(f"The four engines during an image of {model}", fontsize=11)
    handles = [mpl.patches.Patch(color=paint, label=name) for name, paint in paints.items()]
    axes.legend(
        handles=handles, loc="center left", bbox_to_anchor=(1.0, 0.5), fontsize=9, frameon=False
    )
