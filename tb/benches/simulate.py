"""Runs a cocotb bench on a component's Verilog under Verilator or Icarus."""

import contextlib
import json
import os
import re
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from amaranth.hdl import Value
from amaranth.lib.wiring import Component, In

from celosia.arch.errors import RunError
from celosia.arch.packages import Deferred
from celosia.arch.support.cache import cached, digest, run_folder
from celosia.arch.support.process import run_process, tail
from celosia.tb.machine.circuit_sources import kept_verilog
from celosia.tb.machine.toolchain import (
    COVERAGE_OPTIONS,
    PERIOD_NS,
    QUICK_OPTIONS,
    Runtime,
    check_simulator,
    environment,
    simulator_version,
    without_comments,
)

_runners: Any = Deferred("celosia.tb.benches.runner", "Benches need")
_check_results: Any = Deferred("cocotb_tools.check_results", "Benches need")

_REWRITTEN = "COCOTB_REWRITE_ASSERTION_FILES"
"""The files whose failed assertions show their values; with ``*.py`` in the environment, all of
them."""

_TIMESCALE = ("1ns", "1ps")
_BUILD_ARGS = {
    # Warnings are looked at by the lint test; a bench only has to run.
    "verilator": ["-Wno-fatal", "-Wno-lint", "-Wno-style", "-O3", "--x-initial", "fast"],
    "icarus": [],
}


@dataclass(frozen=True)
class Ran:
    """Result of a bench that passed: the number of tests, and the sum of their clock cycles."""

    tests: int
    cycles: int


def simulate(
    component: Component,
    *,
    bench: str,
    simulator: str,
    seed: int,
    parameters: Mapping[str, Any] | None = None,
    testcase: str | Sequence[str] | None = None,
    waves: Path | None = None,
    timeout: float = 300.0,
    verilog: str | None = None,
    mutants: Path | None = None,
    coverage: Path | None = None,
) -> Ran:
    """Run cocotb tests of a bench module on a component: all of them, or those named ``testcase``.

    ``timeout`` limits the build and the run (seconds each). ``waves`` and ``coverage`` are files to
    write. ``verilog``, if given, replaces the component's Verilog; its top module is named ``top``.
    Raises :class:`RunError` if a test fails, and :class:`InputError` if the simulator is unknown or
    missing.
    """
    check_simulator(simulator)
    verilog = kept_verilog(component, "top") if verilog is None else verilog
    print(f"{bench} {simulator} seed {seed}", flush=True)
    form = "" if waves is None else "fst" if waves.suffix == ".fst" else "vcd"
    build = _build(verilog, simulator, form, coverage is not None, timeout)
    folder = run_folder(bench.rpartition(".")[2])
    arguments = {
        # With ``mutants``, a folder of mutations' numbers, ``verilog`` has mutations.
        "test_module": bench if mutants is None else ["celosia.tb.verify.mutation.forks", bench],
        "hdl_toplevel": "top",
        "hdl_toplevel_lang": "verilog",
        "build_dir": str(build),
        "test_dir": str(folder),
        "results_xml": str(folder / "results.xml"),
        "seed": seed,
        "waves": bool(form),
        "timescale": _TIMESCALE,
    }
    if testcase is not None:
        arguments["testcase"] = testcase
    if form and simulator == "icarus":
        arguments["plusargs"] = [f"+dumpfile_path={folder / 'dump'}.{form}"]
    work = f"Bench {bench} under {simulator} with seed {seed}"
    extra = {
        # pytest's rewriting of every module takes half of a short bench's time.
        _REWRITTEN: os.environ.get(_REWRITTEN, ""),
        "CELOSIA_SEED": str(seed),
        "CELOSIA_PARAMETERS": json.dumps(dict(parameters or {})),
        "CELOSIA_INPUTS": json.dumps(_inputs(component)),
        # cocotb reads the limit before it imports the module that forks.
        **(
            {} if mutants is None else {"CELOSIA_MUTANTS": str(mutants), "COCOTB_MAX_FAILURES": "1"}
        ),
        **({} if coverage is None else {"CELOSIA_COVERAGE": str(coverage)}),
    }
    try:
        runner = _runner(folder, simulator, "test", bool(form), work, timeout)
        with contextlib.suppress(SystemExit):  # inside pytest, if a test failed
            runner.test(**arguments, extra_env=extra)
        ran = _ran(folder / "results.xml", work, folder / "test.log")
        if coverage is not None:
            shutil.copyfile(folder / "coverage.dat", coverage)
        return ran
    finally:
        if waves is not None:
            for dump in folder.glob(f"dump.{form}"):
                shutil.copyfile(dump, waves)
        shutil.rmtree(folder, ignore_errors=True)


def _ran(results: Path, work: str, log: Path) -> Ran:
    """Read the number of tests and of cycles from cocotb's report, and check that none failed."""
    tests, failed = _check_results.get_results(results) if results.is_file() else (0, 0)
    if failed or not tests:
        raise RunError(f"{work} failed{'' if tests else ', it ran no test'}:\n{tail(log)}")
    spent = []
    for case in ElementTree.parse(results).iter("testcase"):
        properties = {each.get("name"): each.get("value") for each in case.iter("property")}
        spent.append(float(properties["sim_time_stop"]) - float(properties["sim_time_start"]))
    return Ran(len(spent), round(sum(spent) / PERIOD_NS))


def _inputs(component: Component) -> list[str]:
    flattened = component.signature.flatten(component)
    return [
        "__".join(map(str, path))
        for path, member, value in flattened
        if member.flow == In and len(Value.cast(value)) > 0
    ]


def _build(verilog: str, simulator: str, waves: str, coverage: bool, timeout: float) -> Path:
    arguments = {
        "hdl_toplevel": "top",
        "build_args": [
            *_BUILD_ARGS[simulator],
            *[*COVERAGE_OPTIONS] * coverage,
            *["--trace-fst"] * (simulator == "verilator" and waves == "fst"),
        ],
        "timescale": _TIMESCALE,
        "waves": bool(waves),
        "always": True,
    }

    sources = {"top.v": verilog}
    if simulator == "verilator":
        sources["ports.vlt"] = _ports(verilog)

    def build(folder: Path) -> None:
        for name, text in sources.items():
            (folder / name).write_text(text, encoding="utf-8")
        places = {"sources": [str(folder / name) for name in sources], "build_dir": str(folder)}
        work = f"Build for {simulator}"
        make = runtime.lend(folder, verilog)
        runner = _runner(folder, simulator, "build", bool(waves), work, timeout, make)
        runner.build(**arguments, **places)
        runtime.keep(folder)

    flags = environment().get("MAKEFLAGS", "")
    options = (simulator, json.dumps(arguments), flags, metadata.version("cocotb"))
    runner = Path(__file__).with_name("runner.py").read_text(encoding="utf-8")
    tools = (simulator_version(simulator), runner, *QUICK_OPTIONS)
    # The bench's Python takes most of a simulation's time.
    runtime = Runtime("cocotb", *options, make=QUICK_OPTIONS)
    return cached(
        "cocotb", digest(*map(without_comments, sources.values()), *options, *tools), build
    )


def _ports(verilog: str) -> str:
    """Return the control file that makes the top's ports accessible to a bench."""
    body = re.split(r"^module top\b", verilog, flags=re.MULTILINE)[1].partition("endmodule")[0]
    ports = re.findall(r"^  (?:input|output) .*?(\w+)[,;]?$", body, re.MULTILINE)
    lines = [f'public_flat_rw -module "top" -var "{port}"\n' for port in ports]
    return "`verilator_config\n" + "".join(lines)


def _runner(
    folder: Path,
    simulator: str,
    action: str,
    waves: bool,
    work: str,
    timeout: float,
    make: Sequence[str] = (),
) -> Any:
    """Return cocotb's runner of a simulator; its log is the file ``action`` in ``folder``."""
    log = folder / f"{action}.log"

    def start(command: Sequence[str], cwd: Path, env: Mapping[str, str]) -> None:
        run_process(command, work=work, cwd=cwd, log=log, env=env, timeout=timeout)

    if simulator == "icarus":
        return _runners.Dumper(start, waves)
    return _runners.PortsOnly(start, waves, make)
