"""Entries of the gate's record: hashes of Verilog, and figures of compiled models.

Only this module of the gate knows functions of the packages.
"""

import contextlib
import functools
import hashlib
import io
import json
import re
import shlex
import tempfile
import tomllib
from collections.abc import Callable, Iterable
from pathlib import Path
from unittest import mock

import numpy as np

from celosia.arch.errors import InputError
from celosia.arch.presets import PRESETS, load
from celosia.cli.board_options import resolve_board
from celosia.cli.main import celosia
from celosia.fpga.boards import BOARDS
from celosia.fpga.build import Task
from celosia.generators.export.compiled_folder import load_compiled_text
from celosia.generators.verilog.units import UNITS, make_accelerator, make_unit
from celosia.generators.verilog.verilog import to_verilog
from celosia.tb.models.text_session import TextSession
from celosia.tb.models.texts_session import TextsSession
from tools.folder_edits import DATA, tensors_of, write

ROOT = Path(__file__).parents[1]
TABLE = tomllib.loads(Path(__file__).with_name("gate.toml").read_text(encoding="utf-8"))
"""Pairs and machines beside the presets."""
PAIR, CIRCUIT = "pair", "circuit"
"""First part of an entry's name."""
QUICK = [f"{PAIR}/{name}" for name in TABLE["quick"]]
"""Pairs that the tests compare, one of them in `make test-long`."""

Entry = dict[str, int | str | None]
"""Figures of an entry by name."""

_FAMILY = "family:"
_TOKENS, _SOURCE_TOKENS = 8, 6
_MACHINE = re.compile(r"@(\w+)")
_COMMENTS = re.compile(r'("(?:\\.|[^"\\\n])*")|//[^\n]*|/\*.*?\*/', re.DOTALL)
_MODULE = re.compile(r"^module\s+(\w+)(.*?)^endmodule\b", re.MULTILINE | re.DOTALL)
_INSTANCE = re.compile(r"^(\s*)(\w+)(?=\s+(?:#\s*\(|[A-Za-z_\\]\S*\s*\())", re.MULTILINE)


def entries() -> dict[str, Callable[[], Entry]]:
    """Return the function that measures each entry, by the entry's name, slow ones first."""
    measures: dict[str, Callable[[], Entry]] = {}
    for kind, integers in (("encoders", _outputs), ("decoders", _scores)):
        for name, line in TABLE[kind].items():
            measures[f"{PAIR}/{name}"] = functools.partial(_pair, line, integers)
    for board in BOARDS:
        for link, memory in (("uart", None), ("spi", None), ("uart", "sdram")):
            name = f"{CIRCUIT}/board {board} {memory or link}"
            measures[name] = functools.partial(_board, board, link, memory)
    for line in TABLE["accelerators"]:
        measures[f"{CIRCUIT}/accelerator {line}"] = functools.partial(_accelerator, line)
    for unit in UNITS:
        for line in (*PRESETS, *TABLE["units"]):
            measures[f"{CIRCUIT}/{unit} {line}"] = functools.partial(_unit, unit, line)
    return measures


def measure(name: str) -> Entry:
    """Return the figures of an entry, ``failed`` alone if an exception ended it."""
    try:
        with contextlib.chdir(ROOT):
            return entries()[name]()
    except Exception as error:
        return {"failed": f"{type(error).__name__}: {error}"}


def verilog_hash(verilog: str) -> str:
    """Return a hash of Verilog in which comments, spaces and names of modules do not count.

    A module enters the hash of those that contain it in place of its name. The order of modules
    does not count.
    """
    text = _COMMENTS.sub(lambda match: match[1] or " ", verilog)
    bodies = {match[1]: match[2] for match in _MODULE.finditer(text)}

    @functools.cache
    def hashed(name: str) -> str:
        def instance(match: re.Match[str]) -> str:
            return match[1] + (hashed(match[2]) if match[2] in bodies else match[2])

        return _digest(_INSTANCE.sub(instance, bodies[name]).split())

    return _digest([*sorted(map(hashed, bodies)), *_MODULE.sub("", text).split()])


def _digest(parts: Iterable[object]) -> str:
    return hashlib.sha256(" ".join(map(str, parts)).encode()).hexdigest()[:16]


def _unit(unit: str, line: str) -> Entry:
    source, *fields = line.split()
    try:
        verilog = to_verilog(make_unit(unit, load(source, fields)), "top")
    except InputError:
        return {"verilog": "refused"}
    return {"verilog": verilog_hash(verilog)}


def _accelerator(line: str) -> Entry:
    source, bus, control, *fields = line.split()
    component = make_accelerator(load(source, fields), bus, 32, 0, control)
    return {"verilog": verilog_hash(to_verilog(component, "top"))}


def _board(name: str, link: str, memory: str | None) -> Entry:
    try:
        board, config = resolve_board(name, None, (), link, memory)
    except InputError:
        return {"verilog": "refused"}
    # The link names the configuration by a hash of its fields' names and values.
    with mock.patch("celosia.fpga.top.fingerprint", return_value=0):
        return {"verilog": verilog_hash(Task(config=config, board=board).verilog())}


def _pair(line: str, integers: Callable[[Path], list[int]]) -> Entry:
    """Return the words and predicted cycles of a compiled model, and a hash of its integers."""
    model, *options = shlex.split(_expanded(line))
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        if model.startswith(_FAMILY):
            base = json.loads((DATA / "bases.json").read_text())[model.removeprefix(_FAMILY)]
            write(folder / "model", base["config"], tensors_of(base["shapes"]))
            model = str(folder / "model")
        options += ["--add", "c"] * (integers is _outputs) + [
            "--json",
            "--out",
            str(folder / "out"),
        ]
        with (
            contextlib.redirect_stdout(io.StringIO()) as output,
            contextlib.redirect_stderr(io.StringIO()),
        ):
            celosia(["compile", model, *options], standalone_mode=False)
        figures = json.loads(output.getvalue())
        return {
            "words": figures["program_words"],
            "cycles": figures["predicted_cycles"],
            "integers": _digest(integers(folder / "out")),
        }


def _expanded(line: str) -> str:
    """Return the words of a pair with those of machines in the place of their names."""
    expanded = _MACHINE.sub(lambda match: TABLE["machines"][match[1]], line)
    return expanded if expanded == line else _expanded(expanded)


def _outputs(folder: Path) -> list[int]:
    """Return the outputs of the golden machine for the inputs that go with an encoder."""
    (file,) = folder.glob("*_samples.c")
    values = file.read_text(encoding="utf-8").partition("_sample_outputs[")[2].partition("=")[2]
    return [int(value) for value in re.findall(r"-?\d+", values.partition(";")[0])]


def _scores(folder: Path) -> list[int]:
    """Return the logits of the golden machine behind random tokens of a compiled decoder."""
    program, *_ = load_compiled_text(folder)
    rng, count = np.random.default_rng(1), min(_TOKENS, program.places)
    tokens = rng.integers(0, program.vocabulary, (program.batch, count)).tolist()
    scores: list[int] = []
    if program.batch > 1:
        texts = TextsSession(program, "golden")
        for column in zip(*tokens, strict=True):
            texts.advance(column, lambda _: scores.extend(texts.logits().tolist()))
        return scores
    session = TextSession(program, "golden")
    if program.lookups:
        source = min(_SOURCE_TOKENS, program.source_positions)
        session.encode(rng.integers(0, program.vocabulary, source).tolist())
    session.take(tokens[0][: count // 2])
    for token in tokens[0][count // 2 :]:
        scores += session.logits().tolist()
        session.step(token)
    return scores + session.logits().tolist()
