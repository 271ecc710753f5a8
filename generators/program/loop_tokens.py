"""Dependency tokens of a program with loops.

All iterations of a loop push and pop the same tokens, because a loop is stored once.
"""

from collections.abc import Sequence

from celosia.arch.config import Config
from celosia.arch.isa import Engine
from celosia.generators.program.lines import Line, Loop, inside
from celosia.generators.program.tokens import Access, Tokens, order

TRIED = 4
"""Iterations whose tokens are compared for a loop without barriers."""


def loop_tokens(nodes: Sequence[Line | Loop], config: Config) -> dict[int, Tokens] | None:
    """Return the dependency tokens that each instruction of a program pops and pushes.

    The result is a dictionary whose keys are the ``id()`` of the instructions. It is None if the
    tokens cannot be the same in each iteration of a loop without a barrier, or if such a loop
    contains a loop.
    """
    if all(node.barred for node in nodes if isinstance(node, Loop)):
        return _order(nodes, config, body=False)
    return _flow(nodes, config)


def _order(nodes: Sequence[Line | Loop], config: Config, *, body: bool) -> dict[int, Tokens]:
    """Return the tokens of every line, by its identity, in nodes and their loops."""
    flat: list[Line] = []
    accesses: list[Access] = []
    last: dict[Engine, int] = {}
    waiting: dict[Engine, int] = {}
    """Engines that must wait for a barrier before their next instruction, and its index."""
    by_line: dict[int, Tokens] = {}
    for index, node in enumerate(nodes):
        if isinstance(node, Loop):
            by_line |= _order(node.body, config, body=True)
            continue
        access = Access(node.engine, list(node.reads), list(node.writes))
        for neighbour in (index - 1, index + 1):
            beside = nodes[neighbour] if 0 <= neighbour < len(nodes) else None
            if isinstance(beside, Loop):
                inner = list(inside(beside.body))
                access.reads = sorted(node.reads.union(*(line.reads for line in inner)), key=repr)
                access.writes = sorted(
                    node.writes.union(*(line.writes for line in inner)), key=repr
                )
                engines = {line.engine for line in inner} - {Engine.VECTOR}
                if neighbour > index:
                    access.after += [last[engine] for engine in engines if engine in last]
                else:
                    waiting |= dict.fromkeys(engines, len(flat))
        if node.engine in waiting:
            access.after.append(waiting.pop(node.engine))
        if body and not flat:
            waiting = dict.fromkeys(set(Engine) - {Engine.VECTOR}, 0)
        last[node.engine] = len(flat)
        flat.append(node)
        accesses.append(access)
    if body:
        assert flat[0].engine == flat[-1].engine == Engine.VECTOR
        accesses[-1].after += [at for engine, at in last.items() if engine != Engine.VECTOR]
    for line, tokens in zip(flat, order(accesses, config), strict=True):
        by_line[id(line)] = tokens
    return by_line


def _flow(nodes: Sequence[Line | Loop], config: Config) -> dict[int, Tokens] | None:
    """Return the tokens of every line, by its identity, if loops have no barriers.

    Each iteration is assumed to access the memory of all iterations. None if iterations need
    different tokens.
    """
    flat: list[Line] = []
    loops: list[tuple[int, int]] = []
    for node in nodes:
        body = [node] if isinstance(node, Line) else list(inside(node.body))
        if isinstance(node, Loop):
            if len(body) != len(node.body):
                return None
            loops.append((len(flat), len(body)))
        flat += body * (TRIED if isinstance(node, Loop) else 1)
    accesses = [Access(line.engine, list(line.reads), list(line.writes)) for line in flat]
    tokens = order(accesses, config)
    for first, size in loops:
        _take_last(accesses, tokens, first, size)
    if any(access.after for access in accesses):
        tokens = order(accesses, config)
    for first, size in loops:
        once = tokens[first : first + size]
        if any(tokens[first + i * size : first + (i + 1) * size] != once for i in range(TRIED)):
            return None
    return {id(line): line_tokens for line, line_tokens in zip(flat, tokens, strict=True)}


def _take_last(accesses: Sequence[Access], tokens: Sequence[Tokens], first: int, size: int) -> None:
    """Let instructions after a loop pop the tokens that its last iteration pushes additionally.

    The consumer is the last instruction of the token's engine before one that pops a later token of
    the same source engine.
    """
    end = first + TRIED * size
    for place in range(end - size, end):
        giver = accesses[place].engine
        for engine in tokens[place - size].push - tokens[place].push:
            behind = [at for at in range(end, len(accesses)) if accesses[at].engine == engine]
            takers = [at for at in behind[1:] if giver in tokens[at].pop]
            for taker in [at for at in behind if at < min(takers, default=len(accesses))][-1:]:
                accesses[taker].after.append(place)
