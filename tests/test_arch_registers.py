"""The host's registers."""

from celosia.arch.registers import COUNTERS, REGISTER_MAP


def test_addresses_are_distinct_and_fit_the_port():
    addrs = [register.addr for register in REGISTER_MAP.values()]
    assert len(set(addrs)) == len(addrs)
    assert min(addrs) >= 0
    assert max(addrs) < 1 << 8


def test_every_counter_is_two_registers():
    for name in COUNTERS:
        assert REGISTER_MAP[f"{name}_HIGH"].addr == REGISTER_MAP[f"{name}_LOW"].addr + 1
