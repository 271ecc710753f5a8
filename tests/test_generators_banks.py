"""Banks by a timeline: buffers that are read at the same time lie apart, if there is room."""

from itertools import pairwise
from types import SimpleNamespace

import numpy as np
import pytest

from celosia.arch.isa import Opcode
from celosia.arch.presets import PRESETS
from celosia.generators.lower.assembly import REBANKS, settle
from celosia.generators.lower.banks import Banks, conflicts
from celosia.generators.program.allocate import Use
from celosia.generators.program.draft import Draft, Ref

CONFIG = PRESETS["tiny"]
BANK = CONFIG.bank_bytes


def matmul(a: str, b: str, m: int = 16, k: int = 8, n: int = 4) -> Draft:
    return Draft(Opcode.MATMUL, {"a_addr": Ref(a), "b_addr": Ref(b), "m": m, "k": k, "n": n})


def convert(source: str) -> Draft:
    return Draft(Opcode.MAP, {"i_addr": Ref(source), "o_addr": Ref("target")})


def test_what_is_read_at_the_same_time_costs_its_cycles() -> None:
    drafts = [matmul("a", "b"), convert("v"), matmul("a", "c")]
    costs = conflicts(drafts, [(100, 140), (120, 150), (140, 180)], CONFIG)
    # Of sixteen cycles four bring weights; two tiles have four lines each.
    assert costs == {
        ("a", "b"): 8,
        ("a", "c"): 8,
        ("a", "v"): 20 + 10,
        ("b", "v"): 20 / 4,
        ("c", "v"): 10 / 4,
    }


def place(sizes, addresses, costs):
    used = {name: Use([(0, 9)]) for name in sizes}
    return Banks(used, sizes, addresses, costs, CONFIG).run()


def test_a_buffer_moves_where_it_meets_nobody() -> None:
    sizes = {"a": 1000, "v": 1000}
    addresses = place(sizes, {"a": 0, "v": 1000}, {("a", "v"): 50.0})
    assert {addr // BANK for addr in addresses.values()} == {0, 1}


def test_buffers_change_places_where_no_bank_has_room_for_one_more() -> None:
    sizes = dict.fromkeys("aobv", BANK // 2)
    addresses = {"a": 0, "v": BANK // 2, "b": BANK, "o": BANK + BANK // 2}
    moved = place(sizes, addresses, {("a", "v"): 50.0, ("b", "o"): 1.0})
    banks = {name: addr // BANK for name, addr in moved.items()}
    assert banks["a"] != banks["v"]
    assert sorted(moved.values()) == [0, BANK // 2, BANK, BANK + BANK // 2]


def test_without_room_everything_stays() -> None:
    sizes = {"a": BANK // 2, "v": BANK // 2, "b": BANK}
    addresses = {"a": 0, "v": BANK // 2, "b": BANK}
    assert place(sizes, addresses, {("a", "v"): 50.0}) == addresses


@pytest.mark.parametrize("seed", range(5))
def test_costs_never_grow_and_buffers_never_meet(seed) -> None:
    rng = np.random.default_rng(seed)
    config = PRESETS["small"]
    names = [f"b{number}" for number in range(20)]
    sizes = {name: int(rng.integers(1, 3000)) for name in names}
    used, addresses = {}, {}
    for number, name in enumerate(names):
        first = int(rng.integers(50))
        used[name] = Use([(first, first + int(rng.integers(1, 30)))])
        # Apart from the start: each has its own place in the bank that it shares with others.
        addresses[name] = number % 4 * config.bank_bytes + number // 4 * 3008
    costs = {
        (buffer, other): float(rng.integers(1, 100))
        for buffer in names
        for other in names
        if buffer < other and rng.random() < 0.2
    }

    def total(places) -> float:
        size = config.bank_bytes
        return sum(c for (a, b), c in costs.items() if places[a] // size == places[b] // size)

    moved = Banks(used, sizes, addresses, costs, config).run()
    assert total(moved) < total(addresses)
    # Nothing is left to move.
    assert Banks(used, sizes, moved, costs, config).run() == moved
    for moved_buffer, addr in moved.items():
        assert addr % config.line_bytes == 0
        assert addr // config.bank_bytes == (addr + sizes[moved_buffer] - 1) // config.bank_bytes
        for other, other_addr in moved.items():
            if moved_buffer != other and used[moved_buffer].overlaps(used[other]):
                assert addr + sizes[moved_buffer] <= other_addr or other_addr + sizes[other] <= addr


@pytest.mark.parametrize("costs", [(9, 7, 5, 5), (9, 9), (9, 8, 7, 6, 5, 4, 3)])
def test_a_program_with_moved_buffers_is_taken_if_it_is_faster(costs) -> None:
    """The next round begins from it, until one is not faster."""
    timeline = [(100, 140), (120, 150)]
    drafts = [matmul("a", "b"), convert("v")]
    shared = {"a": 0, "v": 1000, "b": BANK, "target": BANK + 1000}
    tried = []

    def moved(addresses):
        if tried or addresses is not shared:
            assert addresses["a"] // BANK != addresses["v"] // BANK
        # As if each program had its buffers where they were.
        tried.append(
            SimpleNamespace(
                **{"assembly": assembly, "drafts": drafts, "timeline": timeline},
                **{"addresses": shared, "cost": (costs[len(tried)],)},
            )
        )
        return tried[-1]

    memory = SimpleNamespace(config=CONFIG, buffers=dict.fromkeys(shared, 100))
    used = {name: Use([(0, 9)]) for name in shared}
    assembly = SimpleNamespace(memory=memory, used=used, held={}, trial=moved)
    best = settle(moved(shared))
    rounds = next((n for n, (a, b) in enumerate(pairwise(costs), 1) if b >= a), REBANKS)
    assert len(tried) - 1 == min(rounds, REBANKS)
    assert best.cost == (min(costs[: REBANKS + 1]),)
