"""Properties of the sequencer, and a proof that dispatched commands never wait forever."""

from functools import reduce
from operator import or_
from types import ModuleType
from typing import Any

from amaranth.hdl import (
    Assert,
    Assume,
    Cat,
    Const,
    Mux,
    ResetSignal,
    Signal,
    Value,
)

from celosia.arch.isa import (
    COUNT_WIDTH,
    DEFINITIONS,
    LOOP_LEVELS,
    REGISTERS,
    WORD_WIDTH,
    Engine,
    Opcode,
)
from celosia.arch.presets import PRESETS
from celosia.arch.registers import Cause
from celosia.hdl.control import sequencer
from celosia.tb.verify.formal.harness import Harness, transfers
from celosia.tb.verify.formal.prover import properties

_CONFIG = PRESETS["tiny"].replace(registered=False, queue_depth=1, program_depth=16)
_LOOPS = tuple(f"loop_{level}" for level in range(LOOP_LEVELS))
_WAIT = 2  # most cycles of a command in an engine
_PATIENCE = 6  # most cycles in which nothing moves
_SEQUENCER = {
    "word": 32,
    "fresh": 1,
    "outside": 1,
    "wrong": 1,
    "value": 28,
    "current": None,
    "left": None,
    "here": 4,
    "full": 1,
    "empty": 1,
}


_PATHS = {name: f"loops.{name}" for name in _LOOPS}


def _means(module: ModuleType, word: Value) -> Value:
    """Return the meaning of a word as a header, by the instruction set alone."""
    means = Const(module.Action.REFUSE.value, module.EARLY_WIDTH)
    for known in _CONFIG.instructions:
        early = {
            "action": module._HEADER_ACTIONS.get(known.opcode, module.Action.SEND),
            "follows": bool(known.operands),
        }
        is_it = (word[:5] == known.opcode) & ~(word & known.reserved).any()
        means = Mux(is_it, module._Early.const(early).as_value(), means)
    return means


def _stored(module: ModuleType) -> Harness:
    """Follow a word and its meaning, which are read from the memory as they were written."""

    def state(m, dut, probes):
        shown, kept = probes.shown, probes.kept
        m.d.comb += [
            Assume(shown[WORD_WIDTH:] == _means(module, shown[:WORD_WIDTH])),
            Assert(kept[WORD_WIDTH:] == _means(module, kept[:WORD_WIDTH])),
            Assert(~probes.fresh | (probes.here == _means(module, probes.word))),
            Assert(kept[:WORD_WIDTH] == dut.program_data),
        ]

    width = WORD_WIDTH + module.EARLY_WIDTH
    shapes = {"shown": width, "kept": width, "word": WORD_WIDTH, "fresh": 1}
    shapes["here"] = module.EARLY_WIDTH
    control = _CONFIG.replace(registered=True).control
    return Harness(module.Sequencer(control, _CONFIG.instructions), state, shapes)


def _sequencer(module: ModuleType) -> Harness:
    """Follow the words that act by the instruction set alone, and check their effects."""
    current, left = module._Decoded, range(module.MAX_WORDS)

    def state(m, dut, probes):
        word, value, fresh, acts = probes.word, probes.value, probes.fresh, dut.advance
        opcodes = {
            known.opcode: (word[:5] == known.opcode) & ~(word & known.reserved).any()
            for known in _CONFIG.instructions
        }
        operands = Signal(range(module.MAX_WORDS))
        for known in _CONFIG.instructions:
            with m.If(opcodes[known.opcode]):
                m.d.comb += operands.eq(len(known.operands))
        # The place of a word in its instruction, which is LOOP, SET or of an engine.
        header, more = Signal(init=1), Signal(range(module.MAX_WORDS))
        loop, first, second = Signal(), Signal(), Signal()
        with m.If(dut.start & ~dut.busy):
            m.d.sync += header.eq(1)
        with m.Elif(fresh & acts):
            with m.If(header):
                m.d.sync += [
                    header.eq(operands == 0),
                    more.eq(operands),
                    loop.eq(opcodes[Opcode.LOOP]),
                    first.eq(opcodes[Opcode.SET]),
                    second.eq(0),
                ]
            with m.Else():
                m.d.sync += [
                    header.eq(more == 1),
                    more.eq(more - 1),
                    loop.eq(0),
                    first.eq(0),
                    second.eq(first),
                ]

        # The words that must be refused, each with its cause.
        runs = dut.busy & ~probes.wrong & fresh
        unknown = ~reduce(or_, opcodes.values())
        refusals = [
            (probes.outside, Cause.PROGRAM),
            (header & unknown, Cause.INSTRUCTION),
            (header & opcodes[Opcode.ENDLOOP] & probes.empty, Cause.LOOP),
            (
                ~header & loop & (probes.full | (value == 0) | (value >> COUNT_WIDTH).any()),
                Cause.LOOP,
            ),
            (~header & first & ((value == 0) | (value >= REGISTERS)), Cause.REGISTER),
        ]
        refused, cause = Signal(), Signal(len(dut.cause))
        for refusal, why in reversed(refusals):
            with m.If(runs & refusal):
                m.d.comb += [refused.eq(1), cause.eq(why)]
        late, kept, before = Signal(), Signal.like(cause), Signal()
        m.d.sync += [late.eq(refused), before.eq(late), kept.eq(cause)]
        refusal = probes.current
        m.d.comb += [
            # A refused word stops the run in the cycle after the next, with its cause.
            Assert(~late | probes.wrong),
            Assert(~probes.wrong | late | before),
            Assert(~late | (dut.busy & (dut.cause == kept))),
            Assert(~before | (~dut.busy & dut.error)),
            Assert(~late | ~dut.o.valid),
            # In every other cycle of a run a word acts, is offered, or is a HALT that waits.
            Assert(~dut.busy | dut.advance | dut.o.valid | dut.halted | late),
            Assert(~dut.halted | (header & opcodes[Opcode.HALT] & fresh)),
            Assert(~dut.o.valid | (dut.o.p.first == header)),
        ]
        # The circuit knows each word's place.
        actions = {module.Action.LOOP: loop, module.Action.SELECT: first, module.Action.SET: second}
        with m.If(dut.busy):
            m.d.comb += Assert(refusal.first == header)
        with m.If(dut.busy & ~header):
            m.d.comb += [Assert(probes.left == more), Assert(more != 0)]
            m.d.comb += Assert(refusal.last == (more == 1))
            m.d.comb += Assert(~(loop | first | second) | (more == Mux(first, 2, 1)))
            m.d.comb += [Assert((refusal.action == each) == is_) for each, is_ in actions.items()]
            m.d.comb += Assert(
                Cat(*actions.values()).any() | (refusal.action == module.Action.SEND)
            )
        m.d.comb += Assert(~fresh | (probes.here == _means(module, word)))

    shapes = _SEQUENCER | {"current": current, "left": left}
    return Harness(module.Sequencer(_CONFIG.control, _CONFIG.instructions), state, shapes)


def _progress(module: ModuleType) -> Harness:
    """Give any commands that can run one after another, to engines that end each of them."""

    def state(m, dut, _probes):
        words = dut.i
        takers = {
            engine: next(d.opcode for d in DEFINITIONS.values() if d.engine == engine)
            for engine in Engine
        }
        pop, push = words.p.word[5:9], words.p.word[9:13]
        m.d.comb += [Assume(words.p.first), Assume(words.p.last), Assume(~dut.clear)]
        moves = [transfers(words)]
        for engine in Engine:
            name = engine.name.lower()
            here = words.p.engine == engine
            m.d.comb += [
                Assume(~here | (words.p.word[:5] == takers[engine])),
                Assume(~here | ~(pop[engine] | push[engine])),
            ]
            out, done = getattr(dut, f"o_{name}"), getattr(dut, f"done_{name}")
            works, gives = Signal(name=f"works_{name}"), Signal(len(Engine), name=f"gives_{name}")
            waited = Signal(range(_WAIT + 1), name=f"waited_{name}")
            m.d.comb += [
                Assume(out.ready == (~works | done)),
                Assume(~done | works),
                Assume(~works | done | (waited != _WAIT)),
                Assume(getattr(dut, f"push_{name}") == gives),
            ]
            m.d.sync += waited.eq(waited + 1)
            with m.If(done):
                m.d.sync += works.eq(0)
            with m.If(transfers(out)):
                m.d.sync += [works.eq(1), gives.eq(out.p.push), waited.eq(0)]
            moves += [transfers(out), done]
        # What the checker asks: in the order of the program each token is given before it is taken.
        for source in Engine:
            for sink in Engine:
                if source != sink:
                    count = Signal(4, name=f"ordered_{source.name}_{sink.name}".lower())
                    takes = transfers(words) & (words.p.engine == sink) & pop[source]
                    gives = transfers(words) & (words.p.engine == source) & push[sink]
                    m.d.comb += Assume(~takes | (count != 0))
                    m.d.sync += count.eq(count + gives - takes)
        still = Signal(range(_PATIENCE + 1))
        with m.If(dut.idle | Cat(moves).any()):
            m.d.sync += still.eq(0)
        with m.Else():
            m.d.sync += still.eq(still + 1)
        m.d.comb += Assert(still != _PATIENCE)

    return Harness(module.Dispatch(_CONFIG.control), state)


def _reset(module: ModuleType) -> Harness:
    """Compare registers after a cycle of reset with their value at power-on, 0."""

    def state(m, dut, probes):
        rst, was = ResetSignal("sync"), Signal(reset_less=True)
        m.d.sync += was.eq(rst)
        inside = [getattr(probes, name) for name in _registers(module)]
        for register in (dut.busy, dut.error, dut.cause, *inside):
            m.d.comb += Assert(~was | (Value.cast(register) == 0))
        m.d.comb += Assert(probes.fresh | ~dut.o.valid)

    return Harness(
        module.Sequencer(_CONFIG.control, _CONFIG.instructions),
        state,
        _registers(module),
        reset=True,
    )


def _registers(module: ModuleType) -> dict[str, Any]:
    """Return the shapes of the registers with a reset that no port shows, by their paths.

    Without ``fresh`` the word and its effect as a header mean nothing; neither has a reset.
    """
    loop = (_CONFIG.control.program_depth - 1).bit_length() + COUNT_WIDTH + 2
    return {
        **dict.fromkeys(("fresh", "outside", "after_last", "wrong"), 1),
        "current": module._Decoded,
        "left": range(module.MAX_WORDS),
        "selected": range(REGISTERS),
        **dict.fromkeys(_LOOPS, loop),
    }


SEQUENCING = properties(
    {
        "sequencer-refuses": _sequencer,
        "sequencer-meaning": _stored,
        "sequencer-reset": _reset,
        "dispatch-progress": _progress,
    },
    probes={
        "sequencer-refuses": {
            **{name: f"dut.{name}" for name in _SEQUENCER if name not in ("full", "empty")},
            "full": "dut.loops.full",
            "empty": "dut.loops.empty",
        },
        "sequencer-meaning": {
            "shown": "dut.program.read_data",
            "kept": "dut.program.write_data",
            **{name: f"dut.{name}" for name in ("word", "fresh", "here")},
        },
        "sequencer-reset": {
            name: f"dut.{_PATHS.get(name, name)}" for name in _registers(sequencer)
        },
    },
    patience=_PATIENCE,
    wait=_WAIT + 1,
)
