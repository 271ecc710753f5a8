"""The tree of commands: headings, examples, options, and answers to old lines."""

import shlex
import subprocess
import sys
import tomllib
from pathlib import Path

import click
import pytest

from celosia.cli.former import TABLE, is_gone, spelling, today
from celosia.cli.main import COMMANDS, celosia
from celosia.cli.tree import Command, commands

EVERY = dict(commands(celosia))
RECORD = Path(__file__).parent / "data" / "old_options.toml"
OLD = tomllib.loads(RECORD.read_text(encoding="utf-8"))
HOST = celosia.get_command(click.Context(celosia), "host")
KNOWN = {"host": HOST, **EVERY}


def options(command: click.Command) -> dict[str, click.Option]:
    """Return a command's options by their names."""
    parameters = [each for each in command.params if isinstance(each, click.Option)]
    return {name: each for each in parameters for name in (*each.opts, *each.secondary_opts)}


def test_the_help_has_every_command_under_a_heading(celosia) -> None:
    code, output, _ = celosia("--help")
    assert code == 0
    body = output.partition("Models:")[2].splitlines()
    listed = [line.split()[0] for line in body if line.startswith("  ") and line[2] != " "]
    assert sorted(listed) == sorted(COMMANDS)


@pytest.mark.parametrize("name", EVERY)
def test_every_help_begins_with_an_example_that_is_parsed(celosia, name: str) -> None:
    command = EVERY[name]
    assert isinstance(command, Command)
    code, output, _ = celosia(*name.split(), "--help")
    assert code == 0
    assert output.split("\n")[2:4] == ["Example:", f"  celosia {name} {command.example}".rstrip()]
    command.make_context(name, command.example_words())


def test_few_options_are_left_and_none_is_hidden() -> None:
    every = [
        option
        for command in (celosia, HOST, *EVERY.values())
        for option in command.params
        if isinstance(option, click.Option)
    ]
    assert not any(option.hidden for option in every)
    assert len(every) <= MOST


MOST = 200


@pytest.mark.parametrize("name", OLD)
def test_every_old_option_has_a_line_today(name: str) -> None:
    """Its template gives options that the command has, or it is spelled as before."""
    for option in (*OLD[name]["values"], *OLD[name]["flags"]):
        check_option(name, option)


def check_option(name: str, option: str) -> None:
    template = spelling(name, option)
    command = TABLE["names"].get(name, name)
    if template is None:
        assert option in options(KNOWN[command])
        return
    assert option not in options(KNOWN[command]) or "{" in template
    if is_gone(template):
        assert len(template.split()) > 4
        return
    other, _, words = template.rpartition("! ")
    known = options(KNOWN[other or command])
    assert all(word in known for word in words.split() if word.startswith("--"))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("fuzz --kind line --count 2", "verify fuzz line --count 2"),
        ("replay model:1:2 --json", "verify replay model:1:2 --json"),
        (
            "run digits --weights int4 --group 8",
            "run digits --quantize weights=int4 --quantize group=8",
        ),
        ("run digits --memory-latency 9", "run digits --memory 9/1"),
        ("bench gemm --m 4 --k 5 --n 6 --json", "bench gemm --json 4x5x6"),
        ("bench sparse --k 5 --n 6", "bench gemm 1x5x6"),
        ("compile digits --memory-interval 2 --out o", "compile digits --out o --memory 40/2"),
        ("compile digits --memory 99 --memory-latency 2", "compile digits --memory 99,2/1"),
        ("bench toggles 64x5x3 --json", "bench gemm --toggles 64x5x3 --json"),
        ("test --unit softmax --json", "test softmax --json"),
        ("coverage --functional", "verify coverage functional"),
        ("text tales --prompt x --context 9 --sinks 3", "run tales --prompt x --context 9:3"),
        ("text numerals --answers f --count 2", "evaluate numerals --answers f --count 2"),
        ("perplexity tales --text f --slots 9", "evaluate tales --text f --context 9:4"),
        ("accuracy --model digits --count 5", "evaluate digits --count 5"),
        ("run my.onnx --tokens 9 --random 2", "run my.onnx --context 9 --inputs random:2"),
        ("generate --bus axi4 --bus-base 64 --out o", "generate --out o --bus axi4:32@64"),
        (
            "board --board icebreaker --flash spi --image i",
            "board --board icebreaker --flash spi:i",
        ),
        ("prove --property skid", "verify prove skid"),
        ("faults digits --protect=correct", "verify faults digits --set protect=correct"),
    ],
)
def test_an_old_line_is_answered_with_the_line_of_today(celosia, old: str, new: str) -> None:
    code, output, errors = celosia(*shlex.split(old))
    assert (code, output) == (2, "")
    assert errors == f"celosia: This is written in another way today: celosia {new}\n"


def test_an_option_that_is_gone_is_answered_with_the_reason(celosia) -> None:
    code, output, errors = celosia("flash", "--board", "x", "m", "--temperature", "1")
    message = "gone: a board that begins by itself takes the likeliest token"
    assert (code, output, errors) == (2, "", f"celosia: Option --temperature is {message}\n")


@pytest.mark.parametrize("line", ["run digits --config small", "test softmax", "--help", ""])
def test_a_line_of_today_has_no_other(line: str) -> None:
    assert today(celosia, line.split()) is None


@pytest.mark.parametrize(
    ("words", "close"),
    [
        (("verfy", "fuzz"), "Did you mean 'verify'?"),
        (("verify", "fuz"), "Did you mean 'fuzz'?"),
        (("run", "digits", "--cuont", "3"), "'--count'"),
        (("run", "digit"), "Unknown model 'digit'; did you mean digits?"),
        (
            ("run", "digits", "--config", "smal"),
            "Unknown configuration 'smal'; did you mean small?",
        ),
        (
            ("run", "digits", "--config", "ulx3s_85"),
            "Unknown configuration 'ulx3s_85'; did you mean ulx3s_85f?",
        ),
        (("run", "digits", "--set", "row=4"), "Unknown field 'row'; did you mean rows?"),
        (("build", "--board", "ulx3s", "--out", "o"), "Unknown board 'ulx3s'; did you mean ulx3s_"),
    ],
)
def test_a_wrong_name_is_answered_with_a_close_one(celosia, words, close) -> None:
    code, output, errors = celosia(*words)
    assert (code, output) == (2, "")
    assert close in errors
    assert errors.count("\n") == 1


def test_a_line_loads_the_module_of_its_command_alone() -> None:
    script = (
        "import sys\n"
        "from celosia.cli.former import today\n"
        "from celosia.cli.main import celosia\n"
        "assert today(celosia, ['configs', '--json']) is None\n"
        "names = [one for one in sys.modules if one.startswith('celosia.cli.')]\n"
        "sys.exit(str([one for one in names if one.partition('cli.')[2] in sys.argv[1:]]))\n"
    )
    ran = subprocess.run(
        [sys.executable, "-c", script, *COMMANDS], capture_output=True, text=True, check=False
    )
    assert ran.stderr.strip() == "['celosia.cli.configs']"
