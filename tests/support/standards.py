"""Generated Verilog by the letter of both standards."""

import subprocess
from pathlib import Path

import pytest

NO_NETS = "`default_nettype none\n"
"""First line of projects that declare every net."""


def refused_by_slang(*files: Path, options: str = "-Wextra -Wno-width-trunc") -> bool:
    """Return whether slang has anything to say of files as IEEE 1800; it prints it.

    A shift whose lowest bits are taken is no mistake.
    """
    driver = pytest.importorskip("pyslang.driver", reason="slang is not installed").Driver()
    driver.addStandardArgs()
    accepted = driver.parseCommandLine(" ".join(["slang", options, *map(str, files)]))
    assert accepted
    assert driver.processOptions()
    driver.parseAllSources()
    driver.reportParseDiags()
    driver.reportCompilation(driver.createCompilation(), True)
    engine = driver.diagEngine
    return bool(engine.numErrors or engine.numWarnings)


def refused_by_icarus(*files: Path) -> str:
    """Return the complaints of Icarus about files as IEEE 1364-2005 and as IEEE 1800-2012."""
    said = ""
    for year in ("2005", "2012"):
        flags = [f"-g{year}", "-Wall", "-Wno-timescale", "-o", "/dev/null"]
        done = subprocess.run(["iverilog", *flags, *files], capture_output=True, encoding="utf-8")
        said += done.stdout + done.stderr
        assert said or done.returncode == 0
    return said
