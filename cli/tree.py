"""Click commands that show an example in their help, and groups that list commands by heading."""

import ast
import importlib.util
import shlex
from collections.abc import Iterator, Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import click
from click.exceptions import NoSuchCommand

from celosia.arch.errors import InputError
from celosia.arch.packages import missing
from celosia.cli.output import as_json

_WHOLE = 1000
"""More characters than a first sentence has, so that click does not cut it."""


class Command(click.Command):
    """A command whose help text begins with an example.

    If ``reports`` is true, the command accepts the option ``--json`` and then prints its results as
    JSON. If ``reports`` is false, ``--json`` is an error.
    """

    def __init__(
        self, *arguments: Any, example: str = "", reports: bool = True, **named: Any
    ) -> None:
        super().__init__(*arguments, **named)
        self.example, self.reports = example, reports
        self.help = (self.help or "").replace("\\b", "\b")  # of docstrings, which are raw

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write a line about ``--json`` at the end of the help text if the command accepts it."""
        if self.reports:
            formatter.write("\nWith --json the result is one JSON object.\n")

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command.

        Raises :class:`InputError` if the user has given ``--json``, but the command does not accept
        it.
        """
        if as_json() and not self.reports:
            raise InputError(f"Option --json is not for {ctx.command_path}, which writes files")
        return super().invoke(ctx)

    def format_help_text(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the example of the command's use, then the command's help text."""
        with formatter.section("Example"):
            formatter.write(f"  {ctx.command_path} {self.example}".rstrip() + "\n")
        super().format_help_text(ctx, formatter)

    def example_words(self) -> list[str]:
        """Return the arguments of the example in the help text, without the command's name."""
        return shlex.split(self.example)


class Tree(click.Group):
    """A group of commands, whose help lists the commands under headings.

    ``headings`` is a dictionary from headings to lists of command names. When the user gives the
    command NAME, the function NAME is imported from the module ``celosia.cli.NAME``. For functions
    with another name, ``functions`` is a dictionary from command names to function names. Without
    ``headings``, the group has the commands that were added to it, as in click.
    """

    command_class = Command

    def __init__(
        self,
        *arguments: Any,
        headings: Mapping[str, Sequence[str]] | None = None,
        functions: Mapping[str, str] | None = None,
        **named: Any,
    ) -> None:
        super().__init__(*arguments, **named)
        self.headings = headings or {}
        self.functions = functions or {}

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the group's options as click does, but accept ``--json`` at more positions.

        The outermost group, ``celosia``, accepts ``--json`` at any position before ``--``, also
        after the name of a subcommand.
        """
        end = args.index("--") if "--" in args else len(args)
        if ctx.parent is None and "--json" in args[:end]:
            others = [word for word in args[:end] if word != "--json"]
            args = ["--json", *others, *args[end:]]
        return super().parse_args(ctx, args)

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of all commands."""
        return [
            name for names in self.headings.values() for name in names
        ] or super().list_commands(ctx)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return the command ``cmd_name``, or None if unknown; import its module at first use.

        Raises :class:`InputError` if the command needs a package that is missing.
        """
        if not self.headings:
            return super().get_command(ctx, cmd_name)
        if cmd_name not in self.list_commands(ctx):
            return None
        try:
            module = importlib.import_module(f"celosia.cli.{cmd_name}")
        except ModuleNotFoundError as error:
            absent = str(error.name).partition(".")[0]
            raise missing(absent, f"Command {cmd_name} needs") from error
        command: click.Command = getattr(module, self.functions.get(cmd_name, cmd_name))
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return (name, command, arguments) of the command with which the list ``args`` begins.

        Raises :class:`click.UsageError` for an unknown command; the message lists similar names.
        """
        names = self.list_commands(ctx)
        if args and args[0] not in names and get_close_matches(args[0], names):
            raise NoSuchCommand(args[0], possibilities=names, ctx=ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the commands under their headings, each with the first sentence of its help."""
        headings = self.headings or {"Commands": self.list_commands(ctx)}
        for heading, names in headings.items():
            with formatter.section(heading):
                rows = [(name, self._short(ctx, name)) for name in names]
                formatter.write_dl(rows)

    def _short(self, ctx: click.Context, name: str) -> str:
        """Return the first sentence of a command's help, without an import of its module."""
        command = self.commands.get(name)
        if self.headings:
            spec = importlib.util.find_spec(f"celosia.cli.{name}")
            assert spec is not None, f"command {name} has a module"
            assert spec.origin is not None, f"module {name} has a file"
            function = self.functions.get(name, name)
            parsed = ast.parse(Path(spec.origin).read_text(encoding="utf-8"))
            (text,) = (
                ast.get_docstring(node)
                for node in parsed.body
                if isinstance(node, ast.FunctionDef) and node.name == function
            )
            command = click.Command(name, help=text)
        return "" if command is None else command.get_short_help_str(_WHOLE)


def commands(group: click.Group, path: tuple[str, ...] = ()) -> Iterator[tuple[str, click.Command]]:
    """Yield (words of the command line, command) for each command in a group and its subgroups.

    The words are a text such as ``bench gemm``. The groups themselves are not yielded.
    """
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        words = (*path, name)
        if isinstance(command, click.Group):
            yield from commands(command, words)
        elif command is not None:
            yield " ".join(words), command


def command_of(group: click.Group, name: str) -> click.Command | None:
    """Return the command with a name such as ``bench gemm``, or None if there is no such command.

    The modules of other commands are not imported. Raises :class:`InputError` if the command needs
    a package that is missing.
    """
    command: click.Command | None = group
    for word in name.split():
        if not isinstance(command, click.Group):
            return None
        command = command.get_command(click.Context(command), word)
    return None if isinstance(command, click.Group) else command
