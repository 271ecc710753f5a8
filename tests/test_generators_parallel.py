"""A function in two processes gives what it gives in one."""

import os
import subprocess
import sys
import textwrap

import pytest

from generators.verilog.parallel import parallel_map
from tb.toolchain import ROOT


def in_a_process_of_its_own(program: str) -> str:
    """Run a program without the threads of the test runner, so that it may fork."""
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)],
        capture_output=True,
        cwd=ROOT,
        encoding="utf-8",
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="needs a second processor")
def test_results_come_in_order_from_two_processes() -> None:
    text = in_a_process_of_its_own(
        """
        import os, time
        from generators.verilog.parallel import parallel_map

        def square(x):
            time.sleep(0.02)
            return x * x, os.getpid()

        found = parallel_map(square, range(50))
        assert [square for square, _ in found] == [x * x for x in range(50)]
        print(len({process for _, process in found}))
        """
    )
    assert text == "2"


def test_what_either_process_raises_is_raised() -> None:
    for process in ("==", "!="):
        text = in_a_process_of_its_own(
            f"""
            import os, time
            from generators.verilog.parallel import parallel_map

            parent = os.getpid()
            alone = len(os.sched_getaffinity(0)) < 2

            def fail(x):
                time.sleep(0.02)
                if alone or os.getpid() {process} parent:
                    raise ValueError("no")

            try:
                parallel_map(fail, range(20))
            except ValueError as error:
                print(error)
            """
        )
        assert text == "no"


def test_few_items_need_no_second_process() -> None:
    assert parallel_map(lambda x: (x, os.getpid()), [7]) == [(7, os.getpid())]
    assert parallel_map(str, []) == []
