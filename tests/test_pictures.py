"""The pictures of measured figures: every bar's value is written on its picture."""

import re

import pytest

from tools.pictures import FOLDER, OTHERS, SOURCES, bars, draw, shown

TEXT_WIDTH = 736
"""Width of the text of the documentation's site (pixels)."""


def text_size(svg: str) -> float:
    """Return the size of a picture's smallest letters on the documentation's site (pixels)."""
    (width,) = re.findall(r'^<svg .*viewBox="0 0 ([\d.]+) ', svg, re.MULTILINE)
    sizes = re.findall(r'font(?:-size)?[=:] ?"?([\d.]+)', svg)
    return min(map(float, sizes)) * TEXT_WIDTH / float(width)


def test_letters_of_the_picture_of_the_machine_are_readable() -> None:
    svg = (FOLDER.parent / "machine.svg").read_text(encoding="utf-8")
    assert text_size(svg.partition("<title>")[0] + svg.partition("</defs>")[2]) >= 12


@pytest.mark.parametrize("name", SOURCES)
def test_a_picture_shows_today_s_figures(name: str) -> None:
    text = (FOLDER / f"{name}.svg").read_text(encoding="utf-8")
    written = re.findall(r"<text [^>]*>(.*?)</text>", text)
    for label, value in bars(SOURCES[name]):
        assert {label, shown(value)} <= set(written), "python -m tools.pictures draws them anew"
    for other in {bar["beside"] for bar in SOURCES[name]["bars"] if "beside" in bar}:
        assert f"{other} ({OTHERS[other]['source']})" in written
    assert len(text) < 60_000
    assert text_size(text) >= 12


def test_a_bar_is_as_long_as_its_value() -> None:
    picture = SOURCES["utilization"]
    (axes,) = draw(picture).axes
    lengths = [bar.get_width() for bar in axes.patches]
    assert lengths == [value for _, value in bars(picture)]
    assert [label.get_text() for label in axes.get_yticklabels()] == [
        label for label, _ in bars(picture)
    ]
