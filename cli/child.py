"""Runs a command of ``celosia`` in another process."""

import shlex
import subprocess
import sys
from collections.abc import Sequence

from celosia.arch.errors import RunError
from celosia.arch.support.cache import ROOT
from celosia.tb.machine.toolchain import environment


def run_command(words: Sequence[str], *, refuses: bool = False) -> subprocess.CompletedProcess[str]:
    """Run ``celosia WORDS --json`` in another process; return its exit code and printed texts.

    ``words`` are the arguments WORDS. The process runs in the project's folder. Raises
    :class:`RunError` if the exit code is not 0 and nothing is printed on standard output. If
    ``refuses`` is true, exit code 2 (the user's input is wrong) raises no error.
    """
    main = "from celosia.cli.main import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", main, *words, "--json"],
        cwd=ROOT,
        env=environment(),
        capture_output=True,
        encoding="utf-8",
    )
    # Mismatches end with code 1 too, behind their result.
    if done.returncode and not done.stdout and not (refuses and done.returncode == 2):
        raise RunError(f"celosia {shlex.join(words)} failed: {done.stderr.strip()[-400:]}")
    return done
