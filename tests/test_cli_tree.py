"""The tree of commands: headings, examples, options, and answers to old lines."""

import json
import re
import shlex
import subprocess
import sys

import click
import pytest

from celosia.arch.presets import PRESETS
from celosia.cli.format_options import MODEL_KEYS
from celosia.cli.former import TABLE, is_gone, template_of, to_current_version
from celosia.cli.main import COMMANDS, celosia
from celosia.cli.tree import Command, commands
from tools.options_page import PAGE, page, record

EVERY = dict(commands(celosia))
OLD = record()
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


@pytest.mark.parametrize("group", ["", "bench", "verify", "host"])
def test_a_list_of_commands_has_whole_sentences(celosia, group: str) -> None:
    _, text, _ = celosia(*group.split(), "--help")
    commands = text.split("Options:")[1]
    assert commands.count("...") == 0
    assert commands.rstrip().endswith(".")


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
    keys = [
        key for each in every if "--quantize" in each.opts for key in KEY.findall(str(each.help))
    ]
    assert len(keys) > len(MODEL_KEYS)
    assert len(every) + len(keys) <= MOST


KEY = re.compile(rf"\b({'|'.join(MODEL_KEYS)}): ")
MOST = 200
"""Options of all commands, and keys of ``--quantize``."""


@pytest.mark.parametrize(
    "line",
    [
        "--json configs",
        "configs --json",
        "--json verify accuracy --rows 9",
        "verify accuracy --json --rows 9",
    ],
)
def test_json_stands_before_or_after_a_command(celosia, line: str) -> None:
    code, output, errors = celosia(*line.split())
    assert (code, errors) == (0, "")
    assert json.loads(output).keys() >= ({"softmax"} if "accuracy" in line else set(PRESETS))


@pytest.mark.parametrize("line", ["--json generate --out o", "generate --out o --json"])
def test_json_is_refused_by_a_command_that_writes_files(celosia, line: str) -> None:
    message = "celosia: Option --json is not for celosia generate, which writes files\n"
    assert celosia(*line.split()) == (2, "", message)


@pytest.mark.parametrize("name", OLD)
def test_every_old_option_has_a_line_today(name: str) -> None:
    """Its template gives options that the command has, or it is spelled as before."""
    for option in (*OLD[name]["values"], *OLD[name]["flags"]):
        check_option(name, option)


def check_option(name: str, option: str) -> None:
    template = template_of(name, option)
    command = TABLE["names"].get(name, name)
    if template is None:
        known = options(KNOWN[command]) | options(celosia)
        assert option in known
        return
    assert option not in options(KNOWN[command]) or "{" in template
    if is_gone(template):
        assert len(template.split()) > 4
        return
    other, _, words = template.rpartition("! ")
    known = options(KNOWN[other or command])
    assert all(word in known for word in words.split() if word.startswith("--"))


def test_the_page_of_old_options_is_current() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), "python -m tools.options_page makes it anew"


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
        ("run tales --quantize kv-bits=4 --json", "run tales --json --quantize kv=int4"),
        (
            "compile tales --quantize kv-blocks=16,kv-bits=4 --quantize folded=yes,deferred=yes",
            "compile tales --quantize kv=int4-blocks,norms=deferred",
        ),
        (
            "run digits --quantize weights=auto,loss=0.5,bits=8,4",
            "run digits --quantize loss=0.5,bits=8,4",
        ),
        ("text tales --kv-bits 4 --deferred", "run tales --quantize kv=int4,norms=deferred"),
        ("run tales --quantize folded=no", "run tales"),
        ("build --device icebreaker", "build --board icebreaker"),
        ("run tales --temperature 0.8 --top-p 0.9", "run tales --temperature 0.8:0.9"),
        (
            "compile digits --testbench --c --out o",
            "compile digits --add testbench --add c --out o",
        ),
        ("generate --fusesoc --out o", "generate --add fusesoc --out o"),
        (
            "evaluate digits --inputs i --labels l --json",
            "evaluate digits --inputs i --answers l --json",
        ),
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
    for words, beginning in (
        (("run", "tales", "--quantize", "sparse=yes"), "Key sparse of --quantize is gone: a mach"),
        (("host", "run", "x", "--kv-bits", "4"), "Option --kv-bits is gone: the folder that cel"),
        (("bench", "decode", "--memory-latency", "9"), "Option --memory-latency is gone: the we"),
    ):
        code, output, errors = celosia(*words)
        assert (code, output) == (2, "")
        assert errors.startswith(f"celosia: {beginning}")


@pytest.mark.parametrize("line", ["run digits --config small", "test softmax", "--help", ""])
def test_a_line_of_today_has_no_other(line: str) -> None:
    assert to_current_version(celosia, line.split()) is None


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


def run_alone(line: str) -> subprocess.CompletedProcess[str]:
    """Run a line in a new process, whose error output then lists the loaded commands."""
    script = (
        "import sys\n"
        "from celosia.cli.former import to_current_version\n"
        "from celosia.cli.main import COMMANDS, celosia\n"
        f"{line}\n"
        "sys.exit(str([name for name in COMMANDS if f'celosia.cli.{name}' in sys.modules]))\n"
    )
    return subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False
    )


def test_a_line_loads_the_module_of_its_command_alone() -> None:
    ran = run_alone("assert to_current_version(celosia, ['configs', '--json']) is None")
    assert ran.stderr.strip() == "['configs']"


def test_the_list_of_commands_loads_no_command_and_has_the_sentences_of_their_helps() -> None:
    ran = run_alone("celosia(['--help'], standalone_mode=False)")
    assert ran.stderr.strip() == "[]"
    told = " ".join(ran.stdout.split())
    for name in COMMANDS:
        command = celosia.get_command(click.Context(celosia), name)
        assert f"{name} {command.get_short_help_str(1000)}" in told
