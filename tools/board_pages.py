"""Make docs/boards/BOARD.md of every board, and the table of docs/boards.md.

python -m tools.board_pages

The facts are those of fpga/boards.toml, amaranth-boards and docs/reports; board_pages.toml has the
hand-written ones, and board_page.md is the form of a page.
"""

import tomllib
from pathlib import Path
from typing import Any

from celosia.arch.errors import InputError
from celosia.arch.link import fingerprint
from celosia.arch.support.pages import between, table
from celosia.cli.board_cases import CASES, read_reports
from celosia.cli.board_options import resolve_board
from celosia.cli.output import text
from celosia.fpga.boards import (
    LEDS,
    SPI,
    Board,
    get_board,
    led_names,
    spi_places,
    with_flash,
    with_sdram,
)
from celosia.fpga.device import known_config
from celosia.fpga.devices import RESOURCES
from celosia.fpga.top import BAUD

HERE = Path(__file__).parent
DOCS = HERE.parent / "docs"
INDEX = DOCS / "boards.md"
FOLDER = DOCS / "boards"
FACTS: dict[str, Any] = tomllib.loads((HERE / "board_pages.toml").read_text(encoding="utf-8"))
"""The hand-written facts of each board."""

FORM = (HERE / "board_page.md").read_text(encoding="utf-8")
REPORTS = read_reports(DOCS / "reports")

_LASTING = ("iceprog", "icesprog", "dfu-util")
"""Loaders that write a bitstream into the flash by default."""

_GRADES = ("simulated, but not placed", "placed and routed, and simulated to its pins")


def _reports(name: str) -> dict[str, Any]:
    """Return the reports of a board's machines, by the machine's name."""
    return {
        case.variant or case.config or "the board's machine": REPORTS[case.file]
        for case in CASES
        if case.board == name and case.unit is None and case.file in REPORTS
    }


def _memory(name: str) -> tuple[str, Board] | None:
    """Return the kind of a board's memory beside the device, and the board with it."""
    try:
        board = with_sdram(get_board(name))
    except InputError:
        return None
    return "DDR3" if board.ddr3 else "PSRAM" if board.psram else "SDRAM", board


def _diagram(board: Board, facts: dict[str, Any]) -> str:
    """Draw the cables from the computer, and the pins that the machine uses."""
    serial = "your converter, serial" if facts.get("external") else "serial"
    cables = [
        (f"--- USB {facts['usb']}, bitstream ", ">", "configuration"),
        (f"--- {serial}, {BAUD:,} baud ", ">", f"rx         {board.pins['rx'].name}"),
        ("<-- serial ", "-", f"tx         {board.pins['tx'].name}"),
    ]
    pins = [f"clk        {board.pins['clk'].name}, {board.clock_mhz:g} MHz"]
    pins += [
        f"{signal:9}  {board.pins[signal].name}, LED {led}"
        for signal, led in zip(LEDS, led_names(board.name), strict=False)
    ]
    wide = max(len(cable) for cable, _, _ in cables) + 3
    lines = [f"computer{' ' * (wide + 2)}{board.part.split('-C')[0]}"]
    lines += [f"        |{cable.ljust(wide - 1, '-')}{end} {pin}" for cable, end, pin in cables]
    lines += [f"{' ' * (wide + 10)}{pin}" for pin in pins]
    return "\n".join(["```text", *lines, "```"])


def _wires(name: str) -> str:
    """Return sentences about the chips beside the device and the pins of SPI."""
    flash = with_flash(get_board(name), "spi").flash
    assert flash is not None
    sentences = [f"The SPI flash chip is {flash.chip.name}."]
    memory = _memory(name)
    if memory:
        kind, board = memory
        chip = board.sdram or board.psram or (board.ddr3 and board.ddr3.chip)
        assert chip is not None
        sentences.insert(0, f"The {kind} chip is {chip.name} ({chip.size >> 20} MB).")
    spi = spi_places(name)
    if spi is None:
        return " ".join([*sentences, "The board has no connector for `--link spi`."])
    connector, places = spi
    pins = get_board(name, "spi").pins
    lines = (
        f"`{line}` {place} (pin {pins[line].name})" for line, place in zip(SPI, places, strict=True)
    )
    sentences.append(
        f"With `--link spi` the lines are on its first `{connector}` connector: {', '.join(lines)}."
    )
    return " ".join(sentences)


def _leds(board: Board) -> str:
    if any(signal in board.pins for signal in LEDS):
        return ""
    return "No LED shows the machine's state on this board.\n\n"


def _info(board: Board, reports: dict[str, Any]) -> str:
    config = resolve_board(board.name, None, (), "uart", None)[1].replace(trace=False)
    known = known_config(fingerprint(config))
    assert known is not None
    clock = next(iter(reports.values()), {}).get("clock_mhz", board.target_mhz)
    return (
        f"`info` shows `config` {known.name}, `configuration` {fingerprint(config):08x}, "
        f"`clock` about {clock * 1e6:,.0f} Hz and `memory` {board.memory_bytes:,} bytes."
    )


def _figures(reports: dict[str, Any]) -> str:
    if not reports:
        return (
            "No machine of this board has been placed, so there is no report. "
            "[Memory](memory.md#ddr3) has the figures that were simulated."
        )
    lines = []
    for name, each in reports.items():
        if "text_model" not in each:
            placed = ", ".join(
                f"{each[key]:,} of {each['available'][key]:,} {title}"
                for key, title in RESOURCES.items()
            )
            label = "The board's machine" if "machine" in name else f"With `--memory {name}`"
            lines.append(
                f"- {label}: {placed}; {text(each['clock_mhz'])} MHz; "
                f"{text(each['cycles_per_inference'])} cycles a digit, "
                f"{text(each['inferences_per_second'])} digits a second."
            )
    lines.append(
        "\nResources and clocks are placed, cycles simulated; [placements](placements.md) has more."
    )
    if len(lines) <= len(reports):
        lines.append("[Language models](language_models.md) run on another machine of this board.")
    return "\n".join(lines)


def page(name: str) -> str:
    """Return the page of a board."""
    board, facts, reports = get_board(name), FACTS[name], _reports(name)
    suffix = board.device.family.bitstream
    loaders = [loader.split()[0] for loader in board.loaders]
    vendor, product = facts["usb"].split(":")
    notes = "".join(f"- {note}\n" for note in facts["notes"])
    return FORM.format(
        name=name,
        title=board.title,
        grade=_GRADES[bool(reports)],
        page=facts["page"],
        buy="\n".join(f"- {line}" for line in facts["buy"]),
        diagram=_diagram(board, facts),
        wires=f"The bitstream passes through {facts['converter']}. {_wires(name)}",
        loaders="` or `".join(loaders) + "`" + ", the first on `PATH`" * (len(loaders) > 1),
        rule=f'SUBSYSTEM=="usb|tty", ATTRS{{idVendor}}=="{vendor}", '
        f'ATTRS{{idProduct}}=="{product}", MODE="0660", TAG+="uaccess"',
        loader=board.loaders[0].replace("{file}", f"build/{name}/{name}.{suffix}"),
        stays="It writes the board's flash, and the bitstream stays there."
        if loaders[0] in _LASTING
        else "The bitstream is lost when the board loses power.",
        suffix=suffix,
        leds=_leds(board),
        port=facts["port"],
        info=_info(board, reports),
        notes=f"{notes}\n" if notes else "",
        figures=_figures(reports),
    )


def boards() -> str:
    """Return the table of all boards."""
    rows = []
    for name, facts in FACTS.items():
        board, memory, reports = get_board(name), _memory(name), _reports(name)
        first = next(iter(reports.values()), {})
        rows.append(
            [
                f"[`{name}`](boards/{name}.md)",
                board.device.name,
                f"{board.config.array.rows}x{board.config.array.cols}",
                board.memory_bytes >> 10,
                memory[0] if memory else "-",
                memory[1].memory_bytes >> 20 if memory else "-",
                "yes" if spi_places(name) else "no",
                facts["largest"],
                first.get("clock_mhz"),
                first.get("inferences_per_second"),
                "placed" if reports else "simulated",
            ]
        )
    head = ["board", "device", "array", "memory on the chip (KB)", "memory beside it"]
    head += ["its size (MB)", "SPI link", "largest model simulated", "clock (MHz)"]
    return table([*head, "digits per second", "grade"], (map(text, row) for row in rows))


def pages() -> dict[Path, str]:
    """Return the content of every generated page, by its file."""
    made = {FOLDER / f"{name}.md": page(name) for name in FACTS}
    index = between(INDEX.read_text(encoding="utf-8"), "table", boards())
    return made | {INDEX: index}


if __name__ == "__main__":
    for path, content in pages().items():
        path.write_text(content, encoding="utf-8")
