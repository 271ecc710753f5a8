"""Bench of ``celosia.hdl.control.dispatch``, which sends queued commands to (modelled) engines.

Parameters: ``config``, the configuration's fields that differ from the preset ``small``;
``commands``, the number of commands; ``stall``, the probability in each cycle that the stream ``i``
pauses.
"""

from itertools import product
from typing import Any

import cocotb
from cocotb.triggers import FallingEdge, RisingEdge

from celosia.arch.isa import DEFINITIONS, MAX_TOKENS, Engine, Opcode
from celosia.arch.presets import PRESETS
from celosia.hdl.ports import WORD, command_layout
from celosia.tb.benches.common import StreamDriver, parameters, rng, start_clock
from celosia.tb.benches.dispatch_commands import (
    Tokens,
    no_tokens,
    program_words,
    random_program,
    shortest_words,
)
from celosia.tb.machine.packing import unpack

PHASE = 12
"""Commands of an engine after which its speed changes."""


class EngineModel:
    """A model of an engine: it accepts a command and completes it after a random time.

    ``due`` is a list of the expected commands. ``limits`` is a list of upper bounds of the random
    time (cycles); after every ``PHASE`` commands, the next bound applies. If ``holds`` is true, the
    engine accepts a command only in the cycle that completes the command.
    """

    def __init__(
        self,
        dut: Any,
        engine: Engine,
        random: Any,
        limits: list[int],
        due: list[dict[str, Any]],
        *,
        holds: bool,
        registered: bool,
    ):
        self.dut, self.engine, self.random = dut, engine, random
        self.registered = registered
        self.name = engine.name.lower()
        self.holds = holds
        self.limits = limits
        self.left: int | None = None
        self.push = 0
        self.due = due
        self.seen = 0
        # Operands that an instruction lacks keep the values of earlier instructions.
        self.fields: dict[str, int] = {}

    def get(self, kind: str, suffix: str = "") -> int:
        """Return the value of the port named by ``kind``, ``_``, the engine's name and ``suffix``.

        Examples of such names are ``waiting_matrix`` and ``o_matrix__valid``.
        """
        return int(getattr(self.dut, f"{kind}_{self.name}{suffix}").value)

    def drive(self) -> None:
        """Drive the engine's ports in this cycle: ready, done, dependency tokens to push."""
        finishes = self.left == 0
        ready = finishes if self.holds else self.left is None
        getattr(self.dut, f"o_{self.name}__ready").value = int(ready)
        getattr(self.dut, f"done_{self.name}").value = int(finishes)
        getattr(self.dut, f"push_{self.name}").value = self.push if finishes else 0

    def sample(self) -> tuple[bool, bool]:
        """Read the engine's ports; return whether a command is accepted, and whether one ends.

        The two booleans are for this cycle. A new command must equal the next one in ``due``, the
        list of expected commands.
        """
        valid, ready = self.get("o", "__valid"), self.get("o", "__ready")
        assert self.registered or not (valid and self.get("waiting"))
        finished, accepted = self.left == 0, bool(valid and ready)
        if valid and (self.left is None or self.holds):
            # A command that is accepted at its end holds until then.
            command = unpack(command_layout(self.engine), self.get("o", "__payload"))
            self.seen += self.left is None
            assert self.seen <= len(self.due), f"{self.name} gets a command too many"
            self.fields |= self.due[self.seen - 1]["fields"]
            known = {name: command[name] for name in self.fields}
            assert known == self.fields, self.seen
        if valid and self.left is None:
            self.push = command["push"]
            limit = self.limits[self.seen // PHASE % len(self.limits)]
            self.left = int(self.random.integers(1, 1 + limit))
        elif finished:
            self.left = None
        elif self.left is not None:
            self.left -= 1
        return accepted, finished


@cocotb.test()
async def commands_wait_for_their_tokens(dut: Any) -> None:
    """Each engine gets its commands in order and with all operands.

    An engine sends dependency tokens to other engines when it completes a command. No engine gets a
    command before all dependency tokens that the command consumes have arrived.
    """
    settings, random = parameters(), rng()
    registered = bool(settings["config"].get("registered"))
    program = random_program(random, settings["commands"])
    queues = {engine: [c for c in program if c["engine"] == engine] for engine in Engine}
    # Each engine is the slowest for a while, so that its queue is full.
    limits = random.permutation([1, 4, 20, 60]).tolist()
    holding = random.permutation(len(Engine))[:2].tolist()
    engines = {
        engine: EngineModel(
            dut,
            engine,
            random,
            limits[engine:] + limits[:engine],
            queues[engine],
            holds=engine in holding,
            registered=registered,
        )
        for engine in Engine
    }
    tokens, taken_count = no_tokens(), dict.fromkeys(Engine, 0)
    early = [Engine.MATRIX] if registered else []
    granted_count = dict.fromkeys(Engine, 0)

    def grant(kind: Engine, held: Tokens) -> None:
        """Consume the tokens of an engine's next command, which must be available."""
        command = queues[kind][granted_count[kind]]
        granted_count[kind] += 1
        for source in command["pop"]:
            assert held[source, kind] > 0, f"{kind.name}'s command started too early"
            tokens[source, kind] -= 1

    # Commands see the previous cycle's tokens. With registers, tokens of other engines than the
    # matrix engine are one cycle later, and so is a command.
    before = no_tokens()
    await start_clock(dut, rng())
    words = program_words(program)
    cocotb.start_soon(StreamDriver(dut, "i", random, settings["stall"]).send(words))
    finished_count = started_count = waits = 0
    for cycle in range(400 * len(program)):
        for engine in engines.values():
            engine.drive()
        await FallingEdge(dut.clk)
        for kind, engine in engines.items():
            # A new command was granted in the previous cycle.
            new = granted_count[kind] == taken_count[kind]
            if registered and new and engine.get("o", "__valid"):
                grant(kind, before | {pair: tokens[pair] for pair in tokens if pair[0] in early})
        seen, before, before_count = dict(tokens), dict(tokens), finished_count
        for source, sink in seen:
            if source in early and engines[source].left == 0:
                seen[source, sink] += engines[source].push >> sink & 1
        for kind, engine in engines.items():
            waits += engine.get("waiting")
            if engine.get("waiting"):
                pop = queues[kind][granted_count[kind]]["pop"]
                lacking = sum(1 << other for other in pop if not seen[other, kind])
                assert engine.get("lacking") == lacking
            else:
                assert engine.get("lacking") == 0
            push = engine.push
            accepted, finished = engine.sample()
            if accepted:
                taken_count[kind] += 1
                if not registered:
                    grant(kind, before)
            if finished:
                finished_count += 1
                for sink in Engine:
                    if push >> sink & 1:
                        tokens[kind, sink] += 1
        in_flight = started_count != before_count
        offered = bool(int(dut.i__valid.value))
        assert not (int(dut.idle.value) and (in_flight or offered)), f"cycle {cycle}: not idle"
        if offered and int(dut.i__ready.value):
            started_count += unpack(WORD, int(dut.i__payload.value))["first"]
        await RisingEdge(dut.clk)
        if finished_count == len(program):
            break
    assert finished_count == len(program), "the engines do not get their commands"
    for engine in engines.values():
        engine.drive()
    await FallingEdge(dut.clk)
    await RisingEdge(dut.clk)
    await FallingEdge(dut.clk)
    assert int(dut.idle.value)
    assert not int(dut.overflow.value)
    assert waits
    for kind, queue in queues.items():
        assert engines[kind].seen == len(queue)


@cocotb.test()
async def every_token_and_every_command_counts(dut: Any) -> None:
    """The dispatcher counts up to ``MAX_TOKENS`` started commands and dependency tokens.

    First, each engine in turn gets ``MAX_TOKENS`` commands, and none ends before the last has
    started. Then each engine gets one command more than there are tokens. The last command waits
    until another token arrives.
    """
    fields, random = parameters()["config"], rng()
    room = fields.get("queue_depth", PRESETS["small"].control.queue_depth) + bool(
        fields.get("registered")
    )
    sliced = 2 * bool(fields.get("registered"))
    await start_clock(dut)
    everything = (1 << len(Engine)) - 1
    for takes, engine in product((False, True), Engine):
        names = {kind: f"{kind}_{engine.name.lower()}" for kind in ("o", "done", "push", "waiting")}
        ready, valid = (getattr(dut, f"{names['o']}__{kind}") for kind in ("ready", "valid"))
        done, push, waiting = (getattr(dut, names[kind]) for kind in ("done", "push", "waiting"))
        pop = [other for other in Engine if takes and other != engine]
        words = shortest_words(engine, pop)
        sends = StreamDriver(dut, "i", random).send(words * (MAX_TOKENS + takes))
        sends = cocotb.start_soon(sends)
        # A queue accepts commands up to its depth.
        ready.value = 0
        accepted = 0
        for _ in range((room + 2) * len(words)):
            await FallingEdge(dut.clk)
            accepted += int(dut.i__valid.value) & int(dut.i__ready.value)
            await RisingEdge(dut.clk)
        # A register slice before the queue holds two words.
        assert accepted == room * len(words) + sliced
        ready.value = 1
        started = 0
        for cycle in range(20 + 2 * MAX_TOKENS * len(words)):
            await FallingEdge(dut.clk)
            started += int(valid.value)
            assert not (int(waiting.value) and started < MAX_TOKENS), started
            assert cycle < 20 or not int(dut.idle.value)
            await RisingEdge(dut.clk)
            if started == MAX_TOKENS:
                break
        assert started == MAX_TOKENS
        await sends
        for _ in range(8):  # one more finds none
            await RisingEdge(dut.clk)
            await FallingEdge(dut.clk)
            assert not int(valid.value)
        lacking = sum(1 << other for other in pop)
        assert int(getattr(dut, f"lacking_{engine.name.lower()}").value) == lacking
        await RisingEdge(dut.clk)
        ready.value = 0
        push.value = everything * (not takes)
        completed = 0
        while completed < MAX_TOKENS:
            done.value = int(random.random() < 0.7)
            await FallingEdge(dut.clk)
            assert not int(dut.idle.value)
            completed += int(done.value)
            await RisingEdge(dut.clk)
        done.value = 0
        for _ in range(3):
            await RisingEdge(dut.clk)
        await FallingEdge(dut.clk)
        assert int(dut.idle.value) == (not takes)
        assert not int(dut.overflow.value)
        await RisingEdge(dut.clk)
        # Waiting commands consume arriving tokens.
        for other in pop:
            await run_alone(dut, other, 1 << engine)
        if takes:
            await run_alone(dut, engine, 0, sends=False)
            await FallingEdge(dut.clk)
            assert int(dut.idle.value)
            await RisingEdge(dut.clk)


async def run_alone(dut: Any, engine: Engine, push: int, *, sends: bool = True) -> None:
    """Run one command of an engine: send, accept and complete it.

    At its end the command pushes a dependency token to each engine in the bit mask ``push``. If
    ``sends`` is false, the command is not sent, because it is already in the queue.
    """
    name = engine.name.lower()
    getattr(dut, f"o_{name}__ready").value = 1
    if sends:
        await StreamDriver(dut, "i", rng()).send(shortest_words(engine, []))
    for _ in range(10):
        await FallingEdge(dut.clk)
        accepted = int(getattr(dut, f"o_{name}__valid").value)
        await RisingEdge(dut.clk)
        if accepted:
            break
    assert accepted, f"{name} does not start"
    getattr(dut, f"o_{name}__ready").value = 0
    getattr(dut, f"push_{name}").value = push
    getattr(dut, f"done_{name}").value = 1
    await RisingEdge(dut.clk)
    getattr(dut, f"done_{name}").value = 0
    for _ in range(3):
        await RisingEdge(dut.clk)


@cocotb.test()
async def too_many_tokens_are_reported(dut: Any) -> None:
    """More than ``MAX_TOKENS`` dependency tokens from one engine to another set ``overflow`` to 1.

    Only tokens that no command has consumed are counted. The input ``clear`` sets the token counts
    and the output ``overflow`` to 0.
    """
    random = rng()
    await start_clock(dut)
    last = (Engine.LOAD, Engine.MATRIX)
    for source, sink in [last, *(pair for pair in no_tokens() if pair != last), last]:
        done = getattr(dut, f"done_{source.name.lower()}")
        done.value = 1
        getattr(dut, f"push_{source.name.lower()}").value = 1 << sink
        for _ in range(MAX_TOKENS):
            await RisingEdge(dut.clk)
        await FallingEdge(dut.clk)
        assert not int(dut.overflow.value)
        await RisingEdge(dut.clk)
        done.value = 0
        if parameters()["config"].get("registered"):
            await RisingEdge(dut.clk)
        await FallingEdge(dut.clk)
        assert int(dut.overflow.value)
        await RisingEdge(dut.clk)
        dut.clear.value = 1
        await RisingEdge(dut.clk)
        dut.clear.value = 0
        await FallingEdge(dut.clk)
        assert not int(dut.overflow.value)
        await RisingEdge(dut.clk)
    fields = {"opcode": int(Opcode.MATMUL), "push": 0, "flags": 0}
    names = DEFINITIONS[Opcode.MATMUL].operands
    command = {
        "engine": Engine.MATRIX,
        "pop": [Engine.LOAD],
        "fields": fields | dict.fromkeys(names, 1),
    }
    await StreamDriver(dut, "i", random).send(program_words([command]))
    for _ in range(8):
        await RisingEdge(dut.clk)
    await FallingEdge(dut.clk)
    assert int(dut.waiting_matrix.value), "a token survived clear"


@cocotb.test()
async def a_push_and_a_pop_of_a_full_counter_are_no_overflow(dut: Any) -> None:
    """A full token counter does not overflow if one token arrives as another is consumed.

    The counter of dependency tokens is full before one more token arrives. If the token arrives
    before the cycle in which another is consumed, ``overflow`` becomes 1; if it arrives in that
    cycle or later, ``overflow`` stays 0.
    """
    registered = bool(parameters()["config"].get("registered"))
    random = rng()
    await start_clock(dut)
    names = DEFINITIONS[Opcode.MATMUL].operands
    fields = {"opcode": int(Opcode.MATMUL), "push": 0, "flags": 0} | dict.fromkeys(names, 1)
    command = {"engine": Engine.MATRIX, "pop": [Engine.LOAD], "fields": fields}
    dut.push_load.value = 1 << Engine.MATRIX
    dut.o_matrix__ready.value = 1
    overflows, both = [], 0
    for at in range(len(program_words([command])) + 12):
        dut.rst.value = 1
        await RisingEdge(dut.clk)
        dut.rst.value = 0
        dut.done_load.value = 1
        for _ in range(MAX_TOKENS):
            await RisingEdge(dut.clk)
        dut.done_load.value = 0
        sends = cocotb.start_soon(StreamDriver(dut, "i", random).send(program_words([command])))
        accepted = False
        for cycle in range(len(program_words([command])) + 15):
            dut.done_load.value = cycle == at
            await FallingEdge(dut.clk)
            accepted |= bool(int(dut.o_matrix__valid.value))
            await RisingEdge(dut.clk)
        await sends
        overflows.append(int(dut.overflow.value))
        assert overflows[-1] or accepted, f"given in cycle {at}"
        # With registers, a push in the cycle before overflows, but the command is sent.
        both += overflows[-1] and accepted
    assert both == registered
    assert 10 < sum(overflows) < len(overflows) - 1
    assert overflows == sorted(overflows, reverse=True)
