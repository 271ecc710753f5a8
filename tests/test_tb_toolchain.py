"""Builds that are kept, commands that fail, and benches that must be able to fail."""

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from amaranth.hdl import Module, signed
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from celosia.arch.support import cache
from celosia.tb.benches.simulate import simulate
from celosia.tb.machine import toolchain
from celosia.tb.machine.packing import pack, unpack
from tools.verilator_command import command


class Adder(wiring.Component):
    """Adds the two numbers of each payload, or takes their difference where it is broken."""

    i: In(stream.Signature(data.StructLayout({"a": signed(5), "b": signed(5)})))
    o: Out(stream.Signature(signed(6)))

    def __init__(self, broken: bool = False):
        self.broken = broken
        super().__init__()

    def elaborate(self, _platform):
        m = Module()
        a, b = self.i.payload.a, self.i.payload.b
        with m.If(~self.o.valid | self.o.ready):
            m.d.comb += self.i.ready.eq(1)
            m.d.sync += [
                self.o.valid.eq(self.i.valid),
                self.o.payload.eq(a - b if self.broken else a + b),
            ]
        return m


@pytest.mark.parametrize("simulator", toolchain.SIMULATORS)
def test_a_bench_passes_and_a_wrong_circuit_fails(simulator: str, tmp_path: Path) -> None:
    options = {"bench": "tests.support.bench_adder", "simulator": simulator, "seed": 7}
    simulate(Adder(), **options, parameters={"count": 200, "stall": 0.4})
    waves = tmp_path / "waves"
    with pytest.raises(
        RuntimeError, match=r"(?s)^Bench tests.support.bench_adder under .* with seed 7 failed"
    ):
        simulate(Adder(broken=True), **options, parameters={"count": 9, "stall": 0.0}, waves=waves)
    assert waves.stat().st_size > 0, "waveforms are kept where a bench fails"


@pytest.mark.parametrize(("name", "first"), [("a.vcd", b"$"), ("a.fst", b"\0")])
def test_waveforms_have_the_form_of_their_name(name: str, first: bytes, tmp_path: Path) -> None:
    """Icarus writes both; Verilator needs lz4's header for FST, and writes VCD everywhere."""
    options = {"bench": "tests.support.bench_adder", "simulator": "icarus", "seed": 7}
    waves = tmp_path / name
    simulate(Adder(), **options, parameters={"count": 5, "stall": 0.0}, waves=waves)
    assert waves.read_bytes()[:1] == first


def test_a_bench_without_such_a_test_fails() -> None:
    with pytest.raises(RuntimeError, match="failed, it ran no test:"):
        simulate(
            Adder(),
            bench="tests.support.bench_adder",
            simulator="icarus",
            seed=1,
            parameters={"count": 1, "stall": 0.0},
            testcase="no_such_test",
        )


def test_an_unknown_simulator_is_refused() -> None:
    with pytest.raises(
        ValueError, match=r"^Unknown simulator 'modelsim'; known are verilator, icarus$"
    ):
        toolchain.check_simulator("modelsim")


def test_a_missing_tool_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(toolchain.shutil, "which", lambda _tool: None)
    with pytest.raises(
        ValueError, match=r"^Simulator icarus needs iverilog and vvp, not found here$"
    ):
        toolchain.check_simulator("icarus")


def test_pack_and_unpack_are_inverse() -> None:
    layout = data.StructLayout({"a": signed(5), "b": data.ArrayLayout(signed(3), 2)})
    value = {"a": -7, "b": [-4, 3]}
    assert unpack(layout, pack(layout, value)) == value
    assert pack(signed(4), -1) == 15


def test_builds_are_made_once_and_failed_builds_leave_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CELOSIA_CACHE", str(tmp_path))
    calls = []

    def build(folder: Path) -> None:
        calls.append(folder)
        time.sleep(0.2)
        (folder / "product").write_text("done", encoding="utf-8")

    threads = [threading.Thread(target=cache.cached, args=("kind", "key", build)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(calls) == 1
    assert (tmp_path / "kind" / "key" / "product").read_text("utf-8") == "done"

    def fail(folder: Path) -> None:
        (folder / "half").write_text("", encoding="utf-8")
        raise RuntimeError("no")

    with pytest.raises(RuntimeError, match=r"^no$"):
        cache.cached("kind", "other", fail)
    assert sorted(path.name for path in (tmp_path / "kind").iterdir()) == [
        "key",
        "key.lock",
        "other.lock",
    ]


def test_commands_end_in_time_and_tell_why_they_fail(tmp_path: Path) -> None:
    options = {"work": "Work", "cwd": tmp_path, "log": tmp_path / "log"}
    command = [sys.executable, "-c", "print('why'); raise SystemExit(3)"]
    with pytest.raises(RuntimeError, match=r"^Work failed with exit code 3:\nwhy$"):
        toolchain.run(command, **options, timeout=60)
    begin = time.monotonic()
    with pytest.raises(RuntimeError, match=r"^Work took longer than 0.5 s:"):
        toolchain.run([sys.executable, "-c", "import time; time.sleep(60)"], **options, timeout=0.5)
    assert time.monotonic() - begin < 30


def test_verilator_has_a_command_of_its_own_name(tmp_path: Path) -> None:
    """It builds and runs a program, with nothing in the environment but a path."""
    script = tmp_path / "verilator"
    script.write_text(command())
    script.chmod(0o755)
    (tmp_path / "top.v").write_text(
        'module top; initial begin $display("7"); $finish; end endmodule'
    )
    env = {"PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}", "HOME": str(tmp_path)}
    fast = ("-MAKEFLAGS", "OPT_GLOBAL=-O0", "-Wno-TIMESCALEMOD")
    for words in (["verilator", "--binary", *fast, "top.v"], ["obj_dir/Vtop"]):
        done = subprocess.run(words, cwd=tmp_path, env=env, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("7\n")


def test_waveforms_that_cannot_be_written_are_refused_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, celosia: Callable[..., tuple[int, str, str]]
) -> None:
    monkeypatch.setitem(toolchain.FST_HEADERS, "no_such_header.h", "no-such-dev")
    words = ("test", "argmax", "--config", "tiny", "--waves")
    code, _, errors = celosia(*words, tmp_path / "argmax.fst")
    assert code == 2
    assert errors == (
        "celosia: Verilator writes .fst with no_such_header.h (Debian's package no-such-dev), not "
        "found here; name a file that ends in .vcd, or use --sim icarus\n"
    )
    assert not any(tmp_path.iterdir())
    code, _, errors = celosia(*words, tmp_path / "argmax.vcd")
    assert code == 0, errors
    assert (tmp_path / "argmax.vcd").stat().st_size > 0
