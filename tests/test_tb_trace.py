"""Timelines and pictures of recorded runs: places in the model, tracks, sums."""

import io
import itertools
import json
from functools import cache

import pytest
from matplotlib.image import imread

from celosia.arch.config import Config
from celosia.arch.isa import Engine, Opcode
from celosia.arch.presets import PRESETS
from celosia.generators.lower.artefact import Artefact
from celosia.sim import flow
from celosia.tb.machine.recording import SUMS, Command, Recording, Wait
from celosia.tb.models.cycles_by_operation import Operation, operations
from celosia.tb.models.digits_model import compile_digits
from celosia.tb.models.places import Place, places
from celosia.tb.models.timeline import timeline
from celosia.tb.models.trace_model import trace_model
from celosia.tb.models.trace_picture import png, roofline, utilization
from tests.support.longer import longer

CONFIG = PRESETS["small"].replace(fused=False)
WINDOW = 100


@cache
def compiled() -> Artefact:
    return compile_digits("digits", CONFIG)


@cache
def in_order() -> Recording:
    """Return a run of the digits' model whose commands take 10 cycles each, one by one."""
    steps = list(flow.run(compiled().words))
    commands = [
        Command(
            engine=step.engine,
            opcode=step.opcode,
            flags=step.flags,
            operands=step.operands,
            sent=10 * index,
            offered=10 * index + 2,
            begin=10 * index + 2,
            end=10 * index + 10,
        )
        for index, step in enumerate(steps)
    ]
    cycles = 10 * len(steps) + 5
    # A wait before a command, one that begins within a command, one that another hides.
    first, second = [command for command in commands if command.engine == Engine.MATRIX][:2]
    waits = [
        Wait(Engine.MATRIX, frozenset({Engine.LOAD, Engine.VECTOR}), 1, first.begin),
        Wait(Engine.MATRIX, frozenset({Engine.VECTOR}), first.begin + 3, second.begin),
        Wait(Engine.MATRIX, frozenset({Engine.VECTOR}), second.begin + 3, second.begin + 5),
    ]
    sums = {name: [index % 50 for index in range(-(-cycles // WINDOW))] for name in SUMS}
    return Recording(cycles, WINDOW, commands, waits, sums)


@cache
def found() -> list[Place]:
    return places(in_order().commands, compiled().written, CONFIG)


@cache
def done() -> list[Operation]:
    return operations(in_order(), found(), CONFIG)


def test_every_command_has_its_place() -> None:
    commands = in_order().commands
    assert all(place.tensor for place in found())
    products = [
        place.tensor
        for command, place in zip(commands, found(), strict=True)
        if command.opcode == Opcode.MATMUL
    ]
    heads = 4
    layer = ["query", "key", "value"] + ["scores", "context"] * heads
    layer += ["attention_sum", "hidden", "mlp_sum"]
    wanted = ["embedding", *(f"layers.{n}.{name}" for n in range(2) for name in layer)]
    assert sorted(products) == sorted([*wanted, "pooled", "output"])
    # What is loaded for a product is its weights or its parameters, and comes before it.
    loads = {
        place.tensor
        for command, place in zip(commands, found(), strict=True)
        if command.engine == Engine.LOAD
    }
    assert {"embedding", "layers.1.hidden", "layers.0.attention_input", "output"} <= loads
    assert [p.tensor for c, p in zip(commands, found(), strict=True) if c.opcode == Opcode.STORE]
    part = next(p for p in found() if p.tensor == "layers.1.scores" and p.part)
    assert part.part == "rows 0 to 15, columns 0 to 15, head 0"
    assert part.operation == "layers.1.attention"


def test_without_a_model_a_command_is_known_by_its_kind() -> None:
    commands = in_order().commands
    kinds = places(commands, [], CONFIG)
    for command, place in zip(commands, kinds, strict=True):
        if command.engine == Engine.VECTOR:
            assert place == Place(command.opcode.name.lower())
        if command.opcode == Opcode.MATMUL:
            assert place == Place("drain")


def test_operations_share_all_cycles_products_and_bytes() -> None:
    commands, names = in_order().commands, [operation.name for operation in done()]
    assert len(set(names)) == len(names)
    spans = sorted(span for operation in done() for span in operation.spans)
    assert spans[0][0] == 0
    assert spans[-1][1] == in_order().cycles
    for before, after in itertools.pairwise(spans):
        assert before[1] == after[0]
    pooling = next(operation.macs for operation in done() if operation.name == "pooled")
    assert sum(operation.macs for operation in done()) == compiled().macs() + pooling
    loads = [command.operands for command in commands if command.engine == Engine.LOAD]
    assert sum(operation.loaded for operation in done()) == sum(
        o["m"] * -(-o["row_bytes"] // CONFIG.mem_bytes) * CONFIG.mem_bytes for o in loads
    )
    hidden = next(operation for operation in done() if operation.name == "layers.1.hidden")
    assert (hidden.layer, hidden.kind) == ("layers.1", "hidden")
    assert hidden.macs == 16 * 32 * 64
    assert hidden.vectors == hidden.macs // CONFIG.elements
    assert hidden.cycles == sum(end - begin for begin, end in hidden.spans)
    assert hidden.utilization(CONFIG) == hidden.vectors / hidden.cycles
    # Weights and parameters of 64 columns, at least.
    assert hidden.loaded >= 32 * 64 + 64 * 9


def test_slices_of_a_track_do_not_overlap() -> None:
    shown = json.loads(
        json.dumps(timeline(in_order(), found(), done(), title="a model", mem_bytes=8))
    )
    slices = [event for event in shown["traceEvents"] if event["ph"] == "X"]
    tracks = {
        event["tid"]: event["args"]["name"]
        for event in shown["traceEvents"]
        if event["name"] == "thread_name"
    }
    assert list(tracks.values()) == [
        "model",
        *(f"{engine.name.lower()} engine" for engine in Engine),
    ]
    for track in tracks:
        own = sorted((s["ts"], s["ts"] + s["dur"]) for s in slices if s["tid"] == track)
        assert own
        assert all(begin < end for begin, end in own)
        assert all(before[1] <= after[0] for before, after in itertools.pairwise(own))
    waits = [event for event in slices if event.get("cat") == "wait"]
    assert [wait["name"] for wait in waits] == ["waits for load and vector", "waits for vector"]
    matrix = [command for command in in_order().commands if command.engine == Engine.MATRIX]
    assert waits[1]["ts"] == matrix[0].end
    product = next(event for event in slices if event["name"] == "MATMUL layers.1.hidden")
    assert product["args"]["k"] == 32
    assert product["args"]["tensor"] == "layers.1.hidden"
    counters = [event for event in shown["traceEvents"] if event["ph"] == "C"]
    second = [event for event in counters if event["ts"] == WINDOW]
    assert [event["args"] for event in second] == [
        {name.replace("_", " "): 1.0 for name in SUMS[:-2]},
        {"loaded": 0.08, "stored": 0.08},
    ]


@pytest.mark.parametrize("config", [CONFIG, PRESETS["medium"]])
def test_pictures_are_drawn(config: Config) -> None:
    free = [operation for operation in done() if not operation.loaded]
    for shown in (done(), free, done()[:1]):
        for figure in (
            roofline(shown, config, "a model"),
            utilization(in_order(), shown, config, "a model", 0.5),
        ):
            pixels = imread(io.BytesIO(png(figure)))
            assert pixels.shape[0] > 400
            assert pixels.std() > 0.05


def test_a_machine_without_a_clock_is_refused() -> None:
    message = "^The golden machine has no clock to trace; use verilator or icarus$"
    with pytest.raises(ValueError, match=message):
        trace_model("digits", CONFIG, "golden")


@pytest.mark.slow
@pytest.mark.parametrize("config", [PRESETS["tiny"], *longer(CONFIG)], ids=["tiny", "small"])
def test_a_model_is_traced(config: Config) -> None:
    traced = trace_model("digits-simplified", config, "verilator")
    figures = traced.figures
    assert figures["mismatches"] == 0
    assert figures["cycles"] == traced.recording.cycles
    assert all(operation.vectors <= operation.cycles for operation in traced.operations)
    assert sum(figures["where"].values()) == figures["cycles"]
    for spent in figures["engines"].values():
        assert sum(spent.values()) == figures["cycles"]
    assert all(place.tensor for place in traced.places)
    assert sum(row["cycles"] for row in figures["operations"]) == figures["cycles"]
    vectors = sum(operation.vectors for operation in traced.operations)
    assert vectors == figures["where"]["compute"]
