"""The cache of builds: its folder, its keys, damaged entries, and disks that cannot be written."""

import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from celosia.arch.errors import RunError
from celosia.arch.presets import PRESETS
from celosia.arch.support import cache
from celosia.arch.support.cache import PACKAGE, ROOT
from celosia.fpga.boards import get_board, with_sdram
from celosia.fpga.top import BoardTop
from celosia.tb.machine import circuit_sources, fast_build, toolchain
from celosia.tb.machine.circuit_sources import circuit_files, kept_verilog


@pytest.fixture
def folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Return a new cache's folder, which does not exist yet."""
    place = tmp_path / "cache"
    monkeypatch.setenv("CELOSIA_CACHE", str(place))
    monkeypatch.setattr(cache, "_spare", None)
    return place


@pytest.fixture
def made() -> Callable[[str], Path]:
    """Return a function that requests a build with a key, and lists the keys that it built."""

    def ask(key: str) -> Path:
        def build(place: Path) -> None:
            built.append(key)
            (place / "parts").mkdir()
            for name in ("top.v", "parts/harness"):
                (place / name).write_text(f"{name} of {key}", encoding="utf-8")

        return cache.cached("kind", key, build)

    built: list[str] = []
    ask.built = built
    return ask


@pytest.mark.parametrize(
    ("named", "base", "expected"),
    [
        ("/some/where", "/base", "/some/where"),
        ("~/where", "", "/home/me/where"),
        ("", "/base", "/base/celosia"),
        ("", "", "/home/me/.cache/celosia"),
        ("", "relative", "/home/me/.cache/celosia"),
    ],
)
def test_the_cache_is_the_user_s(
    monkeypatch: pytest.MonkeyPatch, named: str, base: str, expected: str
) -> None:
    monkeypatch.setenv("HOME", "/home/me")
    monkeypatch.setenv("CELOSIA_CACHE", named)
    monkeypatch.setenv("XDG_CACHE_HOME", base)
    assert cache.cache_folder() == Path(expected)


def test_a_relative_folder_is_below_the_current_one(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CELOSIA_CACHE", "mine")
    assert cache.cache_folder() == tmp_path / "mine"


@pytest.mark.parametrize(
    "damage",
    [
        lambda place: (place / "parts/harness").write_text(""),
        lambda place: (place / "top.v").write_text("top.v of"),
        lambda place: (place / "top.v").unlink(),
        lambda place: (place / "sizes.json").write_text(""),
        lambda place: (place / "sizes.json").unlink(),
    ],
)
def test_a_damaged_build_is_made_again(folder, made, damage: Callable[[Path], None]) -> None:
    place = made("key")
    assert made("key") == place == folder / "kind" / "key"
    assert made.built == ["key"]
    damage(place)
    assert made("key") == place
    assert made.built == ["key", "key"]
    assert (place / "top.v").read_text("utf-8") == "top.v of key"
    assert (place / "parts/harness").read_text("utf-8") == "parts/harness of key"
    made("key")
    assert made.built == ["key", "key"]


def test_a_build_that_nobody_asked_for_in_60_days_is_deleted(folder, made, monkeypatch) -> None:
    old, used = made("old"), made("used")
    now = time.time()
    monkeypatch.setattr(cache.time, "time", lambda: now + 61 * 86400)
    monkeypatch.setattr(cache.os, "utime", _later(cache.os.utime, now + 61 * 86400))
    assert made("used") == used
    made("new")
    assert (old.exists(), used.exists()) == (False, True)


def _later(utime, when: float):
    return lambda path: utime(path, (when, when))


def test_a_cache_that_cannot_be_written_is_done_without(
    folder, made, monkeypatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("CELOSIA_CACHE", "/dev/null/cache")
    place = made("one")
    assert (place / "top.v").read_text("utf-8") == "top.v of one"
    assert made("one") == place
    made("two")
    assert made.built == ["one", "two"]
    run = cache.run_folder("bench")
    assert run.is_dir()
    spare = place.parents[1]
    assert spare in run.parents
    assert capsys.readouterr().err == (
        "celosia: /dev/null/cache/kind cannot be written (Not a directory); builds are kept in "
        f"{spare} until this command ends (CELOSIA_CACHE names another folder)\n"
    )


def test_builds_of_a_cache_that_cannot_be_written_are_used(folder, made, capsys) -> None:
    place = made("key")
    (folder / "kind" / "other.lock").mkdir()
    assert made("other") != folder / "kind" / "other"
    assert made("key") == place
    assert made.built == ["key", "other"]
    assert capsys.readouterr().err.count("cannot be written (Is a directory)") == 1


@pytest.mark.parametrize("how", ["error", "tool"])
def test_a_full_disk_is_named(folder, capsys, how: str) -> None:
    def build(place: Path) -> None:
        (place / "half").write_text("")
        if how == "tool":
            raise RunError("Build failed with exit code 1:\ntop.o: No space left on device")
        with open("/dev/full", "w", encoding="utf-8") as full:
            full.write("a")

    with pytest.raises(RunError, match=r"^The disk of \S+/celosia\.\S+/kind is full$"):
        cache.cached("kind", "key", build)
    assert f"celosia: The disk of {folder}/kind is full; builds are kept" in capsys.readouterr().err
    assert [path.name for path in (folder / "kind").iterdir()] == ["key.lock"]


def test_another_error_of_a_build_is_its_own(folder, capsys) -> None:
    def build(place: Path) -> None:
        (place / "nothing").read_text()

    with pytest.raises(FileNotFoundError):
        cache.cached("kind", "key", build)
    assert capsys.readouterr().err == ""


TOP = "// a comment\nmodule top (\n  input wire clk\n);\n  // another\nendmodule\n"


def _keys(monkeypatch: pytest.MonkeyPatch, verilog: str = TOP) -> dict[str, str]:
    """Return the keys under which simulations of some Verilog are kept."""

    def note(kind: str, key: str, _build: Callable[[Path], None]) -> Path:
        keys.append(key)
        raise RunError("noted")

    keys: list[str] = []
    config = PRESETS["tiny"]
    monkeypatch.setattr(fast_build, "accelerator_verilog", lambda _config: verilog)
    for module in (fast_build, toolchain):
        monkeypatch.setattr(module, "cached", note)
    for build in (
        lambda: fast_build.build_verilator(config),
        lambda: fast_build.build_icarus(config, 4096),
    ):
        with pytest.raises(RunError, match=r"^noted$"):
            build()
    keys.append(toolchain.Runtime("harness")._key)
    return dict(zip(("verilator", "icarus", "runtime"), keys, strict=True))


def test_checkouts_share_builds(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keys have no path of a checkout or its environment, and no comment of a circuit."""
    keys = _keys(monkeypatch)
    monkeypatch.setattr(toolchain, "verilator_folder", lambda: Path("/other/verilator"))
    toolchain.simulator_version.cache_clear()
    assert _keys(monkeypatch, TOP.replace("another", "changed")) == keys


def test_another_version_of_a_tool_builds_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    keys = _keys(monkeypatch)
    for module in (fast_build, toolchain):
        monkeypatch.setattr(module, "simulator_version", lambda _simulator: "1.0")
    changed = _keys(monkeypatch)
    assert [name for name in keys if keys[name] == changed[name]] == []


def test_another_circuit_builds_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    keys = _keys(monkeypatch)
    changed = _keys(monkeypatch, TOP.replace("// another", "wire a;"))
    assert [name for name in keys if keys[name] == changed[name]] == ["runtime"]


def test_verilog_depends_on_what_machines_import() -> None:
    """All modules that are loaded to make one count, and no others."""
    script = (
        "import sys, celosia.hdl.machine, celosia.generators.verilog.verilog; print(*sys.modules)"
    )
    command = [sys.executable, "-c", script]
    loaded = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    own = {"arch", "hdl", "generators"}
    below = {name.partition("celosia.")[2] for name in loaded.split()}
    modules = {name for name in below if name.partition(".")[0] in own}
    files = {str(path.relative_to(PACKAGE)) for path in circuit_files()}
    imported = {
        file.removesuffix(".py").removesuffix("/__init__").replace("/", ".") for file in files
    }
    packages = {
        name for name in modules if (PACKAGE.joinpath(*name.split(".")) / "__init__.py").is_file()
    }
    assert modules - packages <= imported
    assert imported <= modules
    assert "hdl/vector/vector.py" in files
    assert "hdl/link/uart.py" not in files


def test_a_disk_that_is_full_elsewhere_is_named(celosia, monkeypatch) -> None:
    def write(*_given: object) -> None:
        with open("/dev/full", "w", encoding="utf-8") as full:
            full.write("a")

    monkeypatch.setattr("celosia.cli.configs.report", write)
    code, _, errors = celosia("configs")
    assert (code, errors) == (1, "celosia: no space is left on a disk that was to be written\n")


def test_a_circuit_is_converted_once_for_its_inputs(monkeypatch, folder) -> None:
    """A board's Verilog is kept by all arguments of its top level and by all its sources."""
    converted = []

    def convert(component: BoardTop, top: str, _prefix: str | None) -> str:
        converted.append(component.inputs)
        return f"module {top}"

    monkeypatch.setattr(circuit_sources, "to_verilog", convert)
    board = with_sdram(get_board("ulx3s_25f"))
    arguments = {"clock": 50_000_000, "memory_bytes": 4096, "divisor": 4, "timeout": 99}
    others = ({"clock": 40_000_000}, {"memory_bytes": 8192}, {"divisor": 5}, {"timeout": 98})
    others += ({"divisor": 49, "timeout": 9},)  # the same digits
    tops = [
        BoardTop(PRESETS["tiny"], **arguments | other) for other in ({}, *others, {"link": "spi"})
    ]
    tops += [
        BoardTop(PRESETS["micro"], **arguments),
        BoardTop(board.config, **arguments, sdram=board.sdram),
    ]
    for top in 2 * tops:
        assert kept_verilog(top, "top") == "module top"
    assert converted == [top.inputs for top in tops]
    assert kept_verilog(tops[0], "other") == "module other"
    count = len(converted)
    for prefix in (None, "None"):
        kept_verilog(tops[0], "third", prefix)
    assert len(converted) == count + 2
    files = {str(path.relative_to(PACKAGE)) for path in circuit_files(BoardTop.__module__)}
    assert {"fpga/top.py", "hdl/link/uart.py", "hdl/memory/sdram/controller.py"} <= files
