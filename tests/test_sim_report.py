"""Reports of runs: published hashes, and cycles by activity."""

import numpy as np

from celosia.sim.report import Report, engine_cycles, signature, splitmix64

GAMMA = 0x9E3779B97F4A7C15


def test_hashes_are_the_published_ones_of_splitmix64() -> None:
    """The generator from seed 1234567 on, as in Rosetta Code's task "Pseudo-random numbers"."""
    states = np.array([(1234567 + place * GAMMA) % (1 << 64) for place in range(5)], np.uint64)
    assert splitmix64(states).tolist() == [
        6457827717110365317,
        3203168211198807973,
        9817491932198370423,
        4593380528125082431,
        16408922859458223821,
    ]


def test_a_signature_is_of_bytes_and_addresses_in_any_order() -> None:
    rng = np.random.default_rng(1)
    addresses = rng.permutation(5000)[:60].reshape(6, 10)
    values = rng.integers(0, 256, (6, 10)).astype(np.uint8)
    of_all = signature(addresses, values)
    assert of_all == signature(addresses[::-1], values[::-1])
    assert of_all == (
        signature(addresses[:2], values[:2]) + signature(addresses[2:], values[2:])
    ) % (1 << 64)
    assert signature(addresses[:0], values[:0]) == 0
    for changed in ((addresses ^ 1, values), (addresses, values ^ 1)):
        assert signature(*changed) != of_all


def test_activities_add_up_to_the_counters() -> None:
    names = ["product", "memory", "wait_load", "wait_vector", "wait_store"]
    names += ["fill", "queue", "fetch", "over"]
    counters = {f"array_{name}": 1 << place for place, name in enumerate(names)}
    assert Report(cycles=511, counters=counters).where == {
        "compute": 1,
        "memory": 2,
        "dependency": 4 + 8 + 16,
        "fill": 32,
        "idle": 64 + 128 + 256,
    }
    assert Report(counters=counters).where == {}
    counters = {"busy_load": 70, "stall_load": 11, "wait_load": 5, "idle_load": 3}
    assert engine_cycles(counters, "LOAD") == {"busy": 59, "stall": 11, "wait": 5, "idle": 3}
