"""Mutants of Python modules, as mutmut makes them, and the tests that reach each."""

import ast
import difflib
import random
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import libcst as cst
from mutmut.mutation.file_mutation import MutationVisitor
from mutmut.mutation.mutators import mutation_operators
from mutmut.mutation.pragma_handling import IgnoredCode


@dataclass(frozen=True)
class Mutant:
    """A module's text with a single change."""

    file: str
    """Path of the module from the repository's root."""
    line: int
    """First line that differs, from 1 on."""
    before: str
    after: str
    """The lines that differ, without their indent."""
    text: str
    """Whole text of the changed module."""

    @property
    def name(self) -> str:
        """The change in a line of text, without the number of the line, which other edits move."""
        return f"{self.file}: {self.before} -> {self.after}"


class _Sites(MutationVisitor):
    """All changes that mutmut knows, also those in functions with decorators.

    mutmut leaves these out, as it keeps all changes in one module. Here each has a text, and a
    change of a decorator is left out alone.
    """

    def _skip_node_and_children(self, node: cst.CSTNode) -> bool:
        if isinstance(node, cst.FunctionDef):
            return False
        return super()._skip_node_and_children(node)


def draw(root: Path, files: Sequence[str], count: int, seed: int) -> list[Mutant]:
    """Return ``count`` mutants of the files, drawn at random from all, in the order drawn."""
    sites = []
    for file in files:
        wrapper = cst.MetadataWrapper(cst.parse_module((root / file).read_text(encoding="utf-8")))
        visitor = _Sites(mutation_operators, IgnoredCode(set(), set(), set()))
        wrapper.visit(visitor)
        sites += [(file, wrapper.module, mutation) for mutation in visitor.mutations]
    drawn = random.Random(seed).sample(sites, min(count, len(sites)))
    mutants = []
    for file, module, mutation in drawn:
        changed = module.deep_replace(mutation.original_node, mutation.mutated_node)
        mutants.append(mutant(file, module.code, changed.code))
    return mutants


def mutant(file: str, original: str, changed: str) -> Mutant:
    """Return the mutant whose text is ``changed``, with the lines in which it differs."""
    old, new = original.splitlines(), changed.splitlines()
    blocks = difflib.SequenceMatcher(None, old, new, autojunk=False).get_opcodes()
    edits = [block for block in blocks if block[0] != "equal"]
    start, end = edits[0][1], edits[-1][2]
    after = new[edits[0][3] : edits[-1][4]]
    joined = [" ".join(line.strip() for line in lines) for lines in (old[start:end], after)]
    return Mutant(file, start + 1, joined[0], joined[1], changed)


def statement_lines(text: str, line: int) -> range | None:
    """Return the lines of the innermost statement at a line, without the statements within it.

    None stands for a line outside all functions and for the head of a function or class, which
    run when the module is imported.
    """
    innermost: ast.stmt | None = None
    inside = False
    for node in ast.walk(ast.parse(text)):
        if not isinstance(node, ast.stmt) or not node.lineno <= line <= (node.end_lineno or 0):
            continue
        body = getattr(node, "body", None)
        if isinstance(node, ast.FunctionDef) and line >= node.body[0].lineno:
            inside = True
        if body and line >= body[0].lineno and isinstance(node, ast.FunctionDef | ast.ClassDef):
            continue
        if innermost is None or node.lineno >= innermost.lineno:
            innermost = node
    if innermost is None or not inside:
        return None
    body = getattr(innermost, "body", None)
    last = innermost.end_lineno or innermost.lineno
    if body and line < body[0].lineno:
        last = max(innermost.lineno, body[0].lineno - 1)
    return range(innermost.lineno, last + 1)
