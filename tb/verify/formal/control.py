"""Properties of the command queues, the engines' dependency tokens and the hardware loops."""

from itertools import permutations
from types import ModuleType, SimpleNamespace

from amaranth.hdl import Assert, Assume, Cat, Mux, Signal, Value

from celosia.arch.isa import COUNT_WIDTH, DEFINITIONS, LOOP_LEVELS, Engine
from celosia.arch.presets import PRESETS
from celosia.hdl.ports import command_layout
from celosia.tb.verify.formal.harness import Harness, ModelQueue, assert_held, transfers
from celosia.tb.verify.formal.prover import properties

_TOKENS = 255
"""Most tokens of one kind that are held (docs/isa.md)."""

_LOOPS = tuple(f"loop_{level}" for level in range(LOOP_LEVELS))
_TAG = slice(9, 13)  # the bits of a header that give tokens, here a command's own number
_STORE = next(known for known in DEFINITIONS.values() if known.engine == Engine.STORE)
_PAIRS = list(permutations((engine.name.lower() for engine in Engine), 2))


def _queue(depth: int, registered: bool):
    """Return the harness of a queue of ``depth`` commands.

    In a registered queue with a memory, the cycle after a command was accepted shows nothing yet.
    """

    def harness(module: ModuleType) -> Harness:
        def state(m, dut, _probes):
            words = dut.i
            # Words come as commands: a header, and behind it any number of operands.
            begins, header_only = Signal(init=1), Signal()
            tag, kept_tag = Signal(4), Signal(4)
            operand, kept = Signal(28), Signal(28)
            m.d.comb += [
                Assume(words.p.first == begins),
                Assume(~words.p.first | (words.p.word[:5] == _STORE.opcode)),
                tag.eq(Mux(words.p.first, words.p.word[_TAG], kept_tag)),
            ]
            with m.If(transfers(words)):
                m.d.sync += [
                    begins.eq(words.p.last),
                    kept_tag.eq(tag),
                    header_only.eq(words.p.first),
                    kept.eq(operand),
                ]
            m.d.comb += operand.eq(Mux(header_only, words.p.word[:28], kept))
            whole = transfers(words) & words.p.last
            value = Cat(tag, words.p.first, operand)
            model = ModelQueue(m, depth, value, whole, transfers(dut.o), "queue")
            oldest = model.values[0]
            command = dut.o.p.command
            first = Value.cast(command[_STORE.operands[0]])
            shown = dut.o.valid
            if registered and dut.stored:
                late_taken = Signal()
                m.d.sync += late_taken.eq(transfers(dut.o))
                m.d.comb += Assume(~(late_taken & dut.o.ready))
                shown = dut.o.valid & ~late_taken
            offered = SimpleNamespace(valid=shown, ready=dut.o.ready, payload=dut.o.payload)
            assert_held(m, offered)
            m.d.comb += [
                Assert(model.count <= depth),
                Assert(~shown | (model.count != 0)),
                Assert(~shown | (command.push == oldest[:4])),
                Assert(~shown | oldest[4] | (first.as_unsigned() == oldest[5:])),
                Assert(dut.busy | (model.count == 0)),
            ]

        queue = module.StagedCommandQueue if registered else module.CommandQueue
        return Harness(queue(Engine.STORE, depth), state)

    return harness


def _tokens(module: ModuleType) -> Harness:
    config = PRESETS["tiny"].replace(registered=False, queue_depth=1)

    def state(m, dut, probes):
        pops, finished = {}, {}
        for engine in Engine:
            name = engine.name.lower()
            # Of a queue's output only the lowest bits, its pop mask, are of interest.
            pop = getattr(probes, f"pop_{name}")
            out = getattr(dut, f"o_{name}")
            pops[name] = (pop, transfers(out))
            finished[name] = (getattr(dut, f"push_{name}"), getattr(dut, f"done_{name}"))
        for source, sink in _PAIRS:
            up = finished[source][0][Engine[sink.upper()]] & finished[source][1]
            wants, starts = pops[sink][0][Engine[source.upper()]], pops[sink][1]
            count = Signal(range(_TOKENS + 1), name=f"model_{source}_{sink}")
            down = wants & starts
            overflow = Signal(name=f"overflow_{source}_{sink}")
            with m.If(dut.clear):
                m.d.sync += [count.eq(0), overflow.eq(0)]
            with m.Else():
                m.d.sync += count.eq(count + up - down)
                m.d.sync += overflow.eq(overflow | (up & ~down & (count == _TOKENS)))
            held = getattr(probes, f"tokens_{source}_{sink}")
            m.d.comb += [
                Assert(~down | (count != 0)),
                Assert(~overflow | dut.overflow),
                Assert(held == count),
                Assert(getattr(probes, f"some_{source}_{sink}") == (count != 0)),
            ]

    probes = {
        f"{kind}_{a}_{b}": 8 if kind == "tokens" else 1
        for kind in ("tokens", "some")
        for a, b in _PAIRS
    }
    for engine in Engine:
        probes[f"pop_{engine.name.lower()}"] = len(Engine) + command_layout(engine).size
    return Harness(module.Dispatch(config.control), state, probes)


def _loops(module: ModuleType) -> Harness:
    """Follow the innermost loop against a model of the whole nest."""

    def state(m, dut, probes):
        width = 4  # bits of a word's address
        starts = [Signal(width, name=f"start_{level}") for level in range(LOOP_LEVELS)]
        left = [Signal(COUNT_WIDTH, name=f"left_{level}") for level in range(LOOP_LEVELS)]
        level = Signal(range(LOOP_LEVELS + 1))
        m.d.comb += [
            Assume(~(dut.enter & dut.turn)),
            Assume(~dut.enter | ((level != LOOP_LEVELS) & (dut.count != 0))),
            Assume(~dut.turn | (level != 0)),
        ]
        again = Signal()
        # The innermost loop is the circuit's first, the others follow.
        for used in range(1, LOOP_LEVELS + 1):
            with m.If(level == used):
                m.d.comb += again.eq(left[used - 1] != 1)
                for place in range(LOOP_LEVELS):
                    held = getattr(probes, f"loop_{place}")
                    if place < used:
                        outer = used - 1 - place
                        more = left[outer] != 1
                        m.d.comb += Assert(held == Cat(starts[outer], left[outer], more, 1))
                        m.d.comb += Assert(left[outer] != 0)
                    else:
                        m.d.comb += Assert(~held[-1])
                m.d.comb += [Assert(dut.start == starts[used - 1]), Assert(dut.again == again)]
        with m.If(level == 0):
            m.d.comb += [
                Assert(~getattr(probes, f"loop_{place}")[-1]) for place in range(LOOP_LEVELS)
            ]
        for place in range(LOOP_LEVELS):
            with m.If(dut.enter & (level == place)):
                m.d.sync += [starts[place].eq(dut.pc), left[place].eq(dut.count)]
            with m.If(dut.turn & (level == place + 1)):
                m.d.sync += left[place].eq(left[place] - 1)
        with m.If(dut.clear):
            m.d.sync += level.eq(0)
        with m.Elif(dut.enter):
            m.d.sync += level.eq(level + 1)
        with m.Elif(dut.turn & ~again):
            m.d.sync += level.eq(level - 1)
        m.d.comb += [
            Assert(level <= LOOP_LEVELS),
            Assert(dut.full == (level == LOOP_LEVELS)),
            Assert(dut.empty == (level == 0)),
        ]

    layout = 4 + COUNT_WIDTH + 2
    return Harness(module.Loops(4), state, dict.fromkeys(_LOOPS, layout))


CONTROL = properties(
    {
        "queue-commands": _queue(2, False),
        "queue-commands-registered": _queue(2, True),
        "queue-commands-memory": _queue(3, False),
        "queue-commands-memory-registered": _queue(3, True),
        "tokens": _tokens,
        "loops": _loops,
    },
    probes={
        "tokens": {
            **{
                f"{kind}_{a}_{b}": f"dut.{kind}_{a}_{b}"
                for kind in ("tokens", "some")
                for a, b in _PAIRS
            },
            **{f"pop_{e.name.lower()}": f"dut.queue_{e.name.lower()}.o__payload" for e in Engine},
        },
        "loops": {name: f"dut.{name}" for name in _LOOPS},
    },
    most=_TOKENS,
)
