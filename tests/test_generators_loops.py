"""Buffers, loads and loops: guarantees of the program's last steps before words."""

import numpy as np
import pytest

from celosia.arch.errors import ProgramError
from celosia.arch.instruction import unpack
from celosia.arch.isa import Opcode
from celosia.arch.presets import PRESETS
from celosia.generators.program.allocate import Use, allocate, live_bytes, uses
from celosia.generators.program.draft import Draft, Given, Item, Ref, Repeat, flatten, place_loads
from celosia.generators.program.image import ImageBuilder
from celosia.generators.program.lines import lines
from celosia.generators.program.loops import with_barriers, words
from celosia.sim.checker import check
from celosia.sim.flow import run

SMALL = PRESETS["small"]


def load(buffer: str, dram: int = 0, size: int = 64) -> Draft:
    operands = {"dram_addr": dram, "sp_addr": Ref(buffer), "m": 1, "row_bytes": size}
    return Draft(Opcode.LOAD, operands, defines=buffer)


def convert(source: str, target: str, offset: int = 0) -> Draft:
    operands = {"i_addr": Ref(source, offset), "o_addr": Ref(target, offset), "m": 1, "n": 8}
    return Draft(Opcode.MAP, operands, frozenset({"per_tensor"}), defines=target)


def store(buffer: str, dram: int, size: int = 64) -> Draft:
    operands = {"dram_addr": dram, "sp_addr": Ref(buffer), "m": 1, "row_bytes": size}
    return Draft(Opcode.STORE, operands)


def compiled(nodes, config=SMALL) -> list[int]:
    names = {name for draft in flatten(nodes) for name in uses([draft])}
    addresses = {name: 128 * place for place, name in enumerate(sorted(names))}
    program = lines(nodes, addresses, config)
    assert program is not None
    made = words(program, config)
    assert made is not None
    return made


def steps(made) -> list[tuple]:
    return [
        (step.opcode, tuple(step.operands.items()), step.flags)
        for step in run(made)
        if step.opcode != Opcode.PARAMS
    ]


def test_loops_mean_the_same_as_their_iterations() -> None:
    def inner(head: int):
        offset = 16 * head
        return [convert("a", "b", offset), convert("b", "c", offset)]

    layers = [
        [load("a", 4096 + 512 * layer), Repeat([inner(head) for head in range(4)])]
        for layer in range(3)
    ]
    before, after = [load("barrier")], [store("c", 0)]
    nested = with_barriers(
        [*before, Repeat([[*layer, convert("c", "d")] for layer in layers]), *after]
    )
    flat = list(
        flatten([*before, *(n for layer in layers for n in [*layer, convert("c", "d")]), *after])
    )
    rolled = compiled(nested)
    straight = compiled([Draft(d.opcode, d.operands, d.flags) for d in flat])
    assert steps(rolled) == steps(straight)
    assert check(rolled, SMALL) > len(flat)
    opcodes = [instruction.opcode for instruction in unpack(rolled)]
    assert opcodes.count(Opcode.LOOP) == 2
    assert len(rolled) < len(straight)


def test_loops_whose_iterations_differ_are_refused() -> None:
    bodies = [[convert("a", "b", offset)] for offset in (0, 8, 24)]
    nodes = with_barriers([Repeat(bodies)])
    addresses = {"a": 0, "b": 128, "barrier": 256}
    assert lines(nodes, addresses, SMALL) is None
    different = [[convert("a", "b")], [convert("a", "b"), convert("b", "a")]]
    assert lines(with_barriers([Repeat(different)]), addresses, SMALL) is None


def test_loops_that_need_too_many_registers_are_refused() -> None:
    bodies = [[convert("a", "b", place * step) for step in range(1, 18)] for place in range(2)]
    program = lines(with_barriers([Repeat(bodies)]), {"a": 0, "b": 128, "barrier": 256}, SMALL)
    assert program is not None
    assert words(program, SMALL) is None


def test_given_registers_grow_themselves_where_no_others_are_left() -> None:
    def moved(register: int, place: int) -> Draft:
        operands = convert("a", "b", 16 * place).operands
        counted = Given(register, 32, Ref("a", 16 * place))
        return Draft(Opcode.MAP, operands | {"i_addr": counted}, frozenset({"per_tensor"}))

    def body(place: int) -> list[Draft]:
        others = [convert("a", "c", step * place) for step in (8, 24)]
        return [moved(13, place), *others, moved(14, place)]

    before = [load("barrier")] + [
        Draft(Opcode.LOAD, load("a").operands | {"dram_addr": Given(register, 4096)})
        for register in range(1, 13)
    ]
    loop = [body(place) for place in range(3)]
    registers = [0, *(512 * number for number in range(1, 13)), 32, 16, 7]

    def taken(made: list[int], values: list[int]) -> list[tuple]:
        return [
            (step.opcode, tuple(step.operands.items()))
            for step in run(made, 0, [*values])
            if step.opcode != Opcode.PARAMS
        ]

    rolled = compiled(with_barriers([*before, Repeat(loop), convert("b", "c"), Repeat(loop)]))
    straight = compiled([*before, *flatten([Repeat(loop), convert("b", "c"), Repeat(loop)])])
    assert taken(rolled, registers) == taken(straight, registers)
    assert check(rolled, SMALL, 0, registers) > 12
    # Without registers that nothing needs behind the loads there are too few.
    late = with_barriers([*before, Repeat(loop), *before])
    names = {"a": 0, "b": 128, "barrier": 256, "c": 384}
    program = lines(late, names, SMALL)
    assert program is not None
    assert words(program, SMALL) is None


def test_iterations_that_need_other_tokens_are_no_loop() -> None:
    # The first iteration waits for the load before the loop, the others for the step before them.
    body = [convert("b", "c"), load("a"), convert("a", "b")]
    nodes = [load("b"), Repeat([body, body])]
    program = lines(nodes, {"a": 0, "b": 128, "c": 256}, SMALL)
    assert program is not None
    assert words(program, SMALL) is None
    behind_barriers = lines(
        with_barriers(nodes), {"a": 0, "b": 128, "c": 256, "barrier": 384}, SMALL
    )
    made = words(behind_barriers, SMALL)
    assert made is not None
    check(made, SMALL)


def test_the_end_of_a_body_waits_for_every_engine() -> None:
    # Nothing in the body reads what it loads; only the step behind the loop does.
    body = [load("a"), convert("b", "c")]
    nodes = [load("barrier"), load("b"), Repeat([body, body]), convert("a", "d")]
    made = compiled(with_barriers(nodes))
    assert check(made, SMALL) == 4 + 2 * 3 + 1


def test_loads_come_before_their_use_but_not_too_early() -> None:
    def section(name: str, count: int) -> list[Item]:
        names = [f"{name}{place}" for place in range(count)]
        return [Item([load(f"w{each}")], [convert(f"w{each}", "o")]) for each in names]

    sections = [section("x", 1), section("y", 3), section("y", 3)]
    for ahead in range(5):
        for across in (False, True):
            nodes = [n for part in place_loads(sections, ahead, across=across) for n in part]
            loads = [p for p, draft in enumerate(nodes) if draft.opcode == Opcode.LOAD]
            others = [p for p, draft in enumerate(nodes) if draft.opcode == Opcode.MAP]
            assert all(a < b for a, b in zip(loads, others, strict=True))
            # A buffer's load follows its last use, one section of three items earlier.
            assert all(loads[place + 3] > others[place] for place in range(1, 4))
            assert (ahead == 0) == (loads == [0, 2, 4, 6, 8, 10, 12])
    split = place_loads(sections, 4, across=False)
    assert [sum(d.opcode == Opcode.LOAD for d in part) for part in split] == [1, 3, 3]


def test_a_load_never_comes_before_the_last_use_of_what_it_replaces() -> None:
    rng, moved = np.random.default_rng(0), 0

    def coin() -> bool:
        return bool(rng.random() < 0.4)

    for _ in range(200):
        count, buffers = int(rng.integers(1, 6)), int(rng.integers(1, 5))

        def item(place: int, buffers: int = buffers) -> Item:
            stream = ("", "words")[int(rng.random() < 0.3)]
            names = [f"{kind}{at}" for kind in ("", "words") for at in range(buffers)]
            loaded = [name for name in names[bool(stream) * buffers :][:buffers] if coin()]
            used = [name for name in names if coin()]
            loads = [load(name, dram=place) for name in loaded]
            return Item(loads, [convert(name, f"o{place}") for name in used], stream)

        sections = [[item(each) for each in range(count)] for _ in range(3)]
        plain = [draft for part in sections for each in part for draft in [*each.loads, *each.body]]
        for early in (False, True):
            ahead, across = int(rng.integers(9)), coin()
            parts = place_loads(sections, ahead, across=across, early=early)
            nodes = [*flatten([node for part in parts for node in part])]
            moved += nodes != plain
            for name in uses(plain):
                assert [n for n in nodes if name in n.buffers] == [
                    n for n in plain if name in n.buffers
                ]
    assert moved > 200


def test_buffers_that_live_together_lie_apart() -> None:
    rng = np.random.default_rng(0)
    for _ in range(50):
        count = int(rng.integers(1, 30))
        sizes = {f"b{i}": int(rng.integers(1, 600)) for i in range(count)}
        lifetimes = {}
        for name in sizes:
            ends = np.sort(rng.choice(200, 4, replace=False))
            lifetimes[name] = Use([(int(ends[0]), int(ends[1])), (int(ends[2]), int(ends[3]))])
        config = SMALL.replace(scratchpad_bytes=8192)
        placed = allocate(lifetimes, sizes, config)
        if placed is None:
            assert live_bytes(lifetimes, sizes) > config.scratchpad.bytes // 4
            continue
        for buffer, addr in placed.items():
            assert addr % config.line_bytes == 0
            bank = addr // config.bank_bytes
            assert (addr + sizes[buffer] - 1) // config.bank_bytes == bank
            for other, other_addr in placed.items():
                if buffer != other and lifetimes[buffer].overlaps(lifetimes[other]):
                    apart = addr + sizes[buffer] <= other_addr
                    assert apart or other_addr + sizes[other] <= addr


def test_an_output_never_takes_the_place_of_its_input() -> None:
    assert Use([(0, 5)]).overlaps(Use([(5, 9)]))
    assert Use([(0, 1), (7, 9)]).overlaps(Use([(2, 3), (5, 7)]))
    assert not Use([(0, 1), (7, 9)]).overlaps(Use([(2, 3), (5, 6)]))


def test_uses_end_where_a_buffer_is_defined_anew() -> None:
    drafts = [load("a"), convert("a", "b"), load("a"), convert("a", "b"), convert("a", "b")]
    lifetimes = uses(drafts)
    assert lifetimes["a"].intervals == [(0, 1), (2, 4)]
    assert lifetimes["b"].intervals == [(1, 1), (3, 3), (4, 4)]
    assert lifetimes["a"].beside["b"] > 0


def test_pieces_are_whole_words_and_rows() -> None:
    image = ImageBuilder(SMALL)
    first = image.add(np.arange(3, dtype=np.uint8))
    second = image.reserve(40_000)
    assert (first.addr, first.m, first.row_bytes) == (0, 1, 8)
    assert (second.addr, second.m, second.row_bytes) == (8, 3, 13_336)
    data = image.finish("toy")
    assert len(data) == image.size == 8 + 3 * 13_336
    assert data[:4].tolist() == [0, 1, 2, 0]


def test_external_memory_reaches_256_mb() -> None:
    """Addresses from 128 MiB on are negative as operands, and so are steps of loops there."""
    far, step = 0x0A00_0000, 0x0060_0000
    layers = [[load("a", far + step * place), convert("a", "b")] for place in range(9)]
    nodes = with_barriers([load("barrier"), Repeat(layers), store("b", far + 0x0500_0000)])
    made = compiled(nodes)
    check(made, SMALL)
    places = [step["dram_addr"] for step in run(made) if "dram_addr" in step.operands]
    assert places == [0, *(far + step * place for place in range(9)), far + 0x0500_0000]


def test_each_iteration_is_checked() -> None:
    """The rows of the second of three iterations cross a bank, those of the others do not."""
    bank, row = SMALL.bank_bytes, load("a").operands["row_bytes"]
    assert isinstance(row, int)
    step = row // 2
    bodies = [[load(name)] for name in ("first", "second", "third")]
    places = {"first": bank - row, "second": bank - row + step, "third": bank - row + 2 * step}
    with pytest.raises(ProgramError, match="crosses a bank"):
        lines(with_barriers([Repeat(bodies)]), places | {"barrier": 0}, SMALL)
