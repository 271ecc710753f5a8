"""The command ``celosia``."""

import importlib
import sys
import warnings

import click

COMMANDS = {
    "configs": "cli.configs",
    "generate": "cli.generate",
    "run": "cli.run",
    "trace": "cli.trace",
    "board": "cli.board",
    "host": "cli.host",
    "bench": "cli.bench",
    "accuracy": "cli.accuracy",
    "perplexity": "cli.perplexity",
    "demo": "cli.demo",
    "text": "cli.text",
    "test": "cli.test",
    "build": "cli.build",
    "flash": "cli.flash",
}
"""Every command and its module, which is loaded only where the command is used."""


class Commands(click.Group):
    """Loads a command's module, and with it its extras, when the command is asked for."""

    def list_commands(self, _context: click.Context) -> list[str]:
        """Return the names of all commands."""
        return list(COMMANDS)

    def get_command(self, _context: click.Context, name: str) -> click.Command | None:
        """Return a command; raise :class:`ValueError` where it needs what is not installed."""
        if name not in COMMANDS:
            return None
        try:
            module = importlib.import_module(COMMANDS[name])
        except ModuleNotFoundError as error:
            raise ValueError(
                f"Command {name} needs the package {error.name}; install "
                "celosia[simulate,digits,plot,boards]"
            ) from error
        command: click.Command = getattr(module, name)
        return command


@click.group(cls=Commands)
@click.version_option(package_name="celosia")
def celosia() -> None:
    """Open Transformer accelerators, generated from parameters and proven bit for bit."""


def main() -> None:
    """Run the command.

    What the user got wrong is one sentence and exit code 2; a simulation that failed is its log's
    end and exit code 1.
    """
    # Units are made also where only their latency is asked for.
    warnings.filterwarnings("ignore", message=".* created but never used")
    try:
        code = celosia(standalone_mode=False)
    except click.exceptions.NoArgsIsHelpError as help_text:
        help_text.show()
        sys.exit(2)
    except click.ClickException as error:
        _refuse(error.format_message())
    except click.Abort:
        sys.exit(130)
    except (ValueError, TypeError) as error:
        _refuse(str(error))
    except RuntimeError as error:
        click.echo(f"celosia: {error}", err=True)
        sys.exit(1)
    else:
        sys.exit(code if isinstance(code, int) else 0)


def _refuse(message: str) -> None:
    click.echo(f"celosia: {message}", err=True)
    sys.exit(2)
