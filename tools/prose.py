"""The prose checker: word list, sentence length, and checks of proselint, over the whole tree.

``python -m tools.prose`` compares the findings of each folder with the exceptions counted in
prose.toml, and ends with status 1 if there are more; ``python -m tools.prose PATH ...`` prints the
findings of some files or folders, a line each.
"""

import ast
import re
import subprocess
import sys
import tomllib
from collections import Counter
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

from proselint.config import DEFAULT, Config
from proselint.registry import CheckRegistry
from proselint.registry.checks import Check, CheckResult
from proselint.registry.checks.types import PreferredFormsSimple
from proselint.tools import LintFile

ROOT = Path(__file__).resolve().parents[1]

RULES = tomllib.loads((ROOT / "tools" / "prose.toml").read_text(encoding="utf-8"))
"""Word list, longest sentence (words), checks of proselint, and exceptions by folder."""

_CODE = re.compile(r"```.*?```|``[^`]+``|:\w+:`[^`]+`|`[^`]+`|https?://\S+", re.DOTALL)
_FENCE = re.compile(r"^(```|~~~).*?^\1", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"(?<=\])\([^)]*\)|<!--.*?-->", re.DOTALL)
_PART = re.compile(r"\n\s*(?:[-*|#>]|\d+\.)\s|\n\s*[\w:]+ {3,}|\n\s*\n|[.!?:;](?=\s)|\|")
_LITERAL = re.compile(r"::\n\s*\n(?P<indent> +)\S.*\n(?:(?P=indent).*\n|\s*\n)*")
_QUOTES = re.compile(r"\b[rf]?\"|\b[rf]?'(?=\W)|\"|\{[^{}]*\}")


def _blank(match: re.Match[str]) -> str:
    """Return a text of the same lines and length that counts as one word."""
    return "x" + re.sub(r"[^\n]", " ", match[0][1:])


def _removed(match: re.Match[str]) -> str:
    return re.sub(r"[^\n]", " ", match[0])


def markdown_prose(text: str) -> str:
    """Return a page with its lines, without code, links and comments."""
    return _CODE.sub(_blank, _LINK.sub(_removed, _FENCE.sub(_removed, text)))


def python_prose(text: str) -> str:
    """Return a module with its lines, nothing left but docstrings, help texts and errors."""
    lines = text.splitlines()
    kept = [""] * len(lines)
    for node in _spoken(ast.parse(text)):
        first, last = node.lineno - 1, node.end_lineno
        part = lines[first:last]
        part[-1] = part[-1].encode()[: node.end_col_offset].decode()
        part[0] = " " * node.col_offset + part[0][node.col_offset :]
        prose = _LITERAL.sub(_removed, "\n".join(part))
        prose = _QUOTES.sub(_blank_quote, _CODE.sub(_blank, prose))
        kept[first:last] = prose.split("\n")
        kept[last - 1] += "." if not prose.rstrip().endswith((".", ":")) else ""
    return "\n".join(kept)


def _blank_quote(match: re.Match[str]) -> str:
    return _blank(match) if match[0].startswith("{") else _removed(match)


def _spoken(tree: ast.Module) -> Iterator[ast.expr]:
    """Yield the texts of a module that a person reads."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            if isinstance(node.value.value, str):
                yield node.value
        elif isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call):
            yield from (each for each in node.exc.args if _is_text(each))
        elif isinstance(node, ast.keyword) and node.arg == "help" and _is_text(node.value):
            yield node.value


def _is_text(node: ast.expr) -> bool:
    return isinstance(node, ast.JoinedStr) or (
        isinstance(node, ast.Constant) and isinstance(node.value, str)
    )


def long_sentences(text: str, check: Check) -> Iterator[CheckResult]:
    """Yield the sentences that are longer than the rules allow."""
    start = 0
    for end in [*_PART.finditer(text), None]:
        sentence = text[start : end.start() if end else len(text)]
        words = len(sentence.split())
        if words > RULES["sentence_words"]:
            begin = start + len(sentence) - len(sentence.lstrip())
            message = check.message.format(words)
            yield CheckResult(check.path, message, (begin, begin + 1), None)
        start = end.end() if end else start


@cache
def _register() -> Config:
    """Add the project's own checks to proselint's once, and return which are on."""
    registry = CheckRegistry()
    words = PreferredFormsSimple(RULES["words"])
    registry.register(Check(words, path="celosia.words", message="Say {} for '{}'."))
    registry.register(
        Check(long_sentences, path="celosia.sentences", message="A sentence of {} words.")
    )
    checks = {"celosia": True, **dict.fromkeys(RULES["proselint"], True)}
    return {**DEFAULT, "max_errors": 100_000, "checks": checks}


def tree() -> list[Path]:
    """Return the files of the tree whose prose is checked, by path."""
    names = subprocess.run(
        ["git", "ls-files", "*.py", "*.md"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.split()
    return [ROOT / name for name in names if not name.startswith(tuple(RULES["left_out"]))]


def findings(path: Path, config: Config) -> list[tuple[int, str]]:
    """Return the line and the message of each finding in a file."""
    text = path.read_text(encoding="utf-8")
    read: Callable[[str], str] = python_prose if path.suffix == ".py" else markdown_prose
    prose = read(text)
    if not prose.strip():
        return []
    results = LintFile(path, prose).lint(config)
    return [(result.pos[0], result.check_result.message) for result in results]


def main(names: list[str]) -> int:
    """Check files, or the whole tree; return the exit status."""
    config = _register()
    if names:
        for path in map(Path, names):
            below = [each for each in tree() if each.is_relative_to(path.resolve())]
            for each in below if path.is_dir() else [path]:
                for line, message in findings(each.resolve(), config):
                    print(f"{each}:{line}: {message}")
        return 0
    counts: Counter[str] = Counter()
    for path in tree():
        folder = path.relative_to(ROOT).parts
        counts[folder[0] if len(folder) > 1 else "."] += len(findings(path, config))
    status = 0
    for folder, count in sorted(counts.items()):
        allowed = RULES["exceptions"].get(folder, 0)
        if count > allowed:
            print(
                f"{folder}: {count} findings, {allowed} are allowed; python -m tools.prose FILE "
                f"lists those of a file that you changed"
            )
            status = 1
        elif count < allowed:
            print(f"{folder}: {count} findings; lower its exceptions in prose.toml ({allowed})")
    print(f"prose: {sum(counts.values()):,} findings in all", file=sys.stderr)
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
