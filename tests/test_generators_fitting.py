"""Remedies for a model that does not fit are found by compiling again."""

import json
import re
from functools import partial

import pytest

from celosia.arch.config import Config
from celosia.arch.errors import InputError
from celosia.generators.lower import fitting
from celosia.generators.lower.fitting import FitError, doubled, prepare_remedy, remedy

BASE = Config.of(name="base", program_depth=512, scratchpad_bytes=8192, param_depth=16)


def needing(**least):
    """Return a compiler that wants so much of each field, and refuses the first that lacks."""

    def compile(config: Config) -> None:
        for field, value in least.items():
            if config.read(field) < value:
                other = doubled(config, "queue_depth")
                raise FitError(f"{field} is too small", doubled(config, field), other)

    return compile


def told(compile) -> str:
    with pytest.raises(FitError) as caught, prepare_remedy(BASE, compile):
        compile(BASE)
    return remedy(caught.value)


def test_the_changes_that_help_are_told() -> None:
    assert told(needing(program_depth=1500)) == "it fits with program_depth=2048"
    both = told(needing(program_depth=600, param_depth=17))
    assert both == "it fits with program_depth=1024 and param_depth=32"


def test_either_of_two_changes_may_help() -> None:
    def compile(config: Config) -> None:
        if config.control.program_depth < 1024 and config.scratchpad.bytes < 32768:
            remedies = doubled(config, "program_depth"), doubled(config, "scratchpad_bytes", 32768)
            raise FitError("too small", *remedies)

    assert told(compile) == "it fits with program_depth=1024, or with scratchpad_bytes=32768"


def test_a_change_that_another_makes_unnecessary_is_left_out() -> None:
    def compile(config: Config) -> None:
        if config.scratchpad.bytes < 32768:
            larger = doubled(config, "scratchpad_bytes", 32768)
            raise FitError("too small", doubled(config, "program_depth"), larger)

    with pytest.raises(FitError) as caught, prepare_remedy(BASE, compile):
        raise FitError("too long", doubled(BASE, "program_depth"))
    assert remedy(caught.value) == "it fits with scratchpad_bytes=32768"


def test_slower_compilations_come_after_faster_ones() -> None:
    calls: list[tuple[bool, int]] = []

    def compile(config: Config, *, slow: bool) -> None:
        calls.append((slow, config.control.program_depth))
        if not slow or config.control.program_depth < 1024:
            raise FitError("too small", doubled(config, "program_depth"))

    fast, slow = partial(compile, slow=False), partial(compile, slow=True)
    with pytest.raises(FitError) as caught, prepare_remedy(BASE, fast, slow):
        raise FitError("too small", doubled(BASE, "program_depth"))
    assert remedy(caught.value) == "it fits with program_depth=1024"
    assert calls[0] == (False, 1024)
    assert [each for each in calls if each[0]] == [(True, 1024)]


def test_sums_get_wider_accumulators() -> None:
    narrow = BASE.replace(max_k=64, acc_width=23)

    def compile(config: Config) -> None:
        if config.accumulators.longest_sum < 4000:
            raise FitError("too small", {"max_k": 4000})

    with pytest.raises(FitError) as caught, prepare_remedy(narrow, compile):
        compile(narrow)
    assert remedy(caught.value) == "it fits with acc_width=29 and max_k=4000"


def test_what_no_configuration_holds_is_said() -> None:
    def compile(config: Config) -> None:
        if config != BASE:
            raise InputError("another reason")
        raise FitError("too small", {"max_row": 9999}, {"program_depth": 1024})

    assert told(compile) == "no configuration has room, of 1 larger ones that were tried"
    endless = told(lambda config: needing(program_depth=1 << 30)(config))
    assert re.fullmatch(r"no configuration has room, of \d+ larger ones that were tried", endless)


FITS = re.compile(r"; it fits with (.*)\n$")


@pytest.mark.parametrize(
    ("command", "changes"),
    [
        (("compile", "digits", "--config", "small"), ["program_depth=300", "max_row=8"]),
        (("run", "tales", "--sim", "golden", "--steps", "1"), ["program_depth=64"]),
    ],
)
def test_what_is_told_fits(celosia, tmp_path, command, changes) -> None:
    out = ("--out", tmp_path / "out") if command[0] == "compile" else ()
    changed = [word for change in changes for word in ("--set", change)]
    code, _, error = celosia(*command, *changed, *out)
    assert code == 2
    helps = FITS.search(error)
    assert helps, error
    more = [word for change in helps[1].split(" and ") for word in ("--set", change)]
    assert celosia(*command, *changed, *more, *out, "--json")[0] == 0


def test_inspect_tells_whether_a_model_fits(celosia) -> None:
    code, shown, _ = celosia("inspect", "digits", "--config", "small", "--json")
    fit = json.loads(shown)["fit"]
    assert (code, fit["config"], fit["refused"]) == (0, "small", None)
    assert fit["program_words"] < 2000 < fit["memory_bytes"]
    code, shown, _ = celosia("inspect", "tales", "--config", "tiny")
    assert code == 0
    assert re.search(r"does not run on tiny: Model tales needs .*; it fits with .*=", shown)


def test_tries_end(monkeypatch) -> None:
    monkeypatch.setattr(fitting, "MOST_TRIES", 2)
    assert told(needing(program_depth=1 << 15)).endswith("of 2 larger ones that were tried")
