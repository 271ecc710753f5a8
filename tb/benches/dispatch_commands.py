"""Random programs that cannot deadlock, for the bench of ``celosia.hdl.control.dispatch``."""

from typing import Any

import numpy as np

from celosia.arch.isa import DEFINITIONS, FLAG_SHIFT, IMMEDIATE_WIDTH, Engine
from celosia.hdl.ports import WORD
from celosia.tb.machine.packing import pack

Tokens = dict[tuple[Engine, Engine], int]


def no_tokens() -> Tokens:
    """Return a dictionary with 0 dependency tokens for each pair (source, sink) of two engines."""
    return {(source, sink): 0 for source in Engine for sink in Engine if source != sink}


def random_program(random: np.random.Generator, count: int) -> list[dict[str, Any]]:
    """Return ``count`` random commands that consume only dependency tokens of earlier commands.

    A command is a dictionary. ``engine`` is the engine that executes the command, ``pop`` lists the
    engines whose token the command needs, and ``fields`` maps names of command fields to values.
    The last 20 commands need no tokens.
    """
    held = no_tokens()
    program = []
    opcodes = [opcode for opcode, d in DEFINITIONS.items() if d.engine is not None]
    for place in range(count):
        # As often one of the few commands of an engine as any.
        engine = int(random.integers(len(Engine)))
        some = [opcode for opcode in opcodes if DEFINITIONS[opcode].engine == engine]
        some = some if random.random() < 0.5 else opcodes
        opcode = some[int(random.integers(len(some)))]
        definition = DEFINITIONS[opcode]
        engine = definition.engine
        assert engine is not None
        others = [other for other in Engine if other != engine]
        pop = [
            o for o in others if held[o, engine] and random.random() < 0.8 * (place < count - 20)
        ]
        push = [o for o in others if random.random() < 0.4]
        for other in pop:
            held[other, engine] -= 1
        for other in push:
            held[engine, other] += 1
        bound = 1 << (IMMEDIATE_WIDTH - 1)
        program.append(
            {
                "engine": engine,
                "pop": pop,
                "fields": {
                    "opcode": int(opcode),
                    "push": sum(1 << other for other in push),
                    "flags": int(random.integers(1 << 16)),
                    **{n: int(random.integers(-bound, bound)) for n in definition.operands},
                },
            }
        )
    return program


def program_words(program: list[dict[str, Any]]) -> list[int]:
    """Return the payloads that the sequencer sends for a program: an integer per command word."""
    words = []
    for command in program:
        opcode, push, flags, *operands = command["fields"].values()
        pop = sum(1 << other for other in command["pop"])
        header = opcode | pop << 5 | push << 9 | flags << FLAG_SHIFT
        values = [header, *(value % (1 << IMMEDIATE_WIDTH) for value in operands)]
        for index, value in enumerate(values):
            payload = {
                "engine": command["engine"],
                "first": index == 0,
                "last": index == len(values) - 1,
                "word": value,
            }
            words.append(pack(WORD, payload))
    return words


def shortest_words(engine: Engine, pop: list[Engine]) -> list[int]:
    """Return the words (integers) of an engine's shortest command, as the sequencer sends them.

    The command waits for a dependency token from each engine in ``pop``, and sends no token when it
    ends. All operands of the command are 1.
    """
    own = [definition for definition in DEFINITIONS.values() if definition.engine == engine]
    shortest = min(own, key=lambda definition: definition.words)
    fields = {"opcode": int(shortest.opcode), "push": 0, "flags": 0}
    fields |= dict.fromkeys(shortest.operands, 1)
    return program_words([{"engine": engine, "pop": pop, "fields": fields}])
