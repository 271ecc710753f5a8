"""The host's registers, and the page that lists them."""

from pathlib import Path

from arch.registers import COUNTERS, REGISTER_MAP

PAGE = Path(__file__).parents[1] / "docs" / "units" / "control.md"


def test_addresses_are_distinct_and_fit_the_port():
    addrs = [register.addr for register in REGISTER_MAP.values()]
    assert len(set(addrs)) == len(addrs)
    assert min(addrs) >= 0
    assert max(addrs) < 1 << 8


def test_every_counter_is_two_registers():
    for name in COUNTERS:
        assert REGISTER_MAP[f"{name}_HIGH"].addr == REGISTER_MAP[f"{name}_LOW"].addr + 1


def test_page_lists_every_register():
    rows = [line for line in PAGE.read_text(encoding="utf-8").splitlines() if line.startswith("| ")]
    expected = [f"| {REGISTER_MAP['R1'].addr} to {REGISTER_MAP['R15'].addr} | R1 to R15 | write |"]
    for register in REGISTER_MAP.values():
        if register.addr < 16:
            words = (register.addr, register.name, register.access, register.meaning)
            expected.append(f"| {' | '.join(map(str, words))} |")
    for name, meaning in COUNTERS.items():
        low = REGISTER_MAP[f"{name}_LOW"]
        expected.append(f"| {low.addr}, {low.addr + 1} | {name} | {low.access} | {meaning} |")
    for line in expected:
        assert any(row.startswith(line) for row in rows), line
