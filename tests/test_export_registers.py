"""The registers as other tools take them: SystemRDL, a C header, pages."""

import importlib.util
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from celosia.arch.registers import IDENTITY, REGISTER_MAP, systemrdl
from celosia.generators.export.registers import HEADER, header, pages

needs_peakrdl = pytest.mark.skipif(
    any(importlib.util.find_spec(name) is None for name in ("systemrdl", "peakrdl_cheader")),
    reason="PeakRDL is not installed",
)

CHECKS = """\
#include <stddef.h>
#include "celosia_registers.h"
{checks}
"""


def test_every_register_stands_at_its_byte_address() -> None:
    lines = systemrdl().splitlines()
    for register in REGISTER_MAP.values():
        assert f"    }} {register.name} @ 0x{4 * register.addr:X};" in lines


@needs_peakrdl
@pytest.mark.skipif(shutil.which("gcc") is None, reason="GCC is not installed")
def test_the_header_has_every_register_and_field_and_needs_no_library(tmp_path: Path) -> None:
    (tmp_path / HEADER).write_text(header())
    claims = [f"CELOSIA_REGISTERS__ID__VALUE_reset == {IDENTITY}u"]
    for register in REGISTER_MAP.values():
        offset = f"offsetof(celosia_registers_t, {register.name})"
        claims.append(f"{offset} == {4 * register.addr}")
        for field in register.fields:
            mask = ((1 << field.width) - 1) << field.low
            claims.append(f"CELOSIA_REGISTERS__{register.name}__{field.name}_bm == {mask}u")
    checks = "\n".join(
        f"extern char claim_{index}[({claim}) ? 1 : -1];" for index, claim in enumerate(claims)
    )

    def compile_with(text: str) -> int:
        (tmp_path / "checks.c").write_text(CHECKS.format(checks=text))
        flags = ["-std=c99", "-ffreestanding", "-pedantic", "-Wall", "-Wextra", "-Werror"]
        command = ["gcc", *flags, "-fsyntax-only", "checks.c"]
        return subprocess.run(command, cwd=tmp_path, capture_output=True).returncode

    assert compile_with(checks) == 0
    wrong = checks.replace("STATUS) == 8", "STATUS) == 12")
    assert wrong != checks
    assert compile_with(wrong) != 0


@needs_peakrdl
@pytest.mark.skipif(importlib.util.find_spec("peakrdl_html") is None, reason="not installed")
def test_the_pages_have_every_register() -> None:
    files = pages()
    assert "index.html" in files
    content = b"".join(files.values()).decode("utf-8", "ignore")
    for name in REGISTER_MAP:
        assert name in content


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda _name: None)
    message = (
        "The registers' header needs the package peakrdl-cheader of the extra firmware; "
        "install it with: pip install '.[firmware]' in a checkout, or 'FILE.whl[firmware]'"
    )
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        header()
