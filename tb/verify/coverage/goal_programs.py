"""Cases of a functional coverage campaign, which runs every instruction with many flags and sizes.

Each case compares one program's results on the circuit with those on the golden machine.
"""

from dataclasses import replace
from typing import Any

import numpy as np

from celosia.arch.config import Config
from celosia.arch.errors import RunError
from celosia.arch.instruction import Instruction, pack
from celosia.arch.isa import RING_SLOTS, Engine, Opcode
from celosia.arch.sparse import HEADER_BEATS, beat_bytes
from celosia.generators.campaign.case import Case
from celosia.generators.program.layout import param_words, rows_image
from celosia.generators.program.tokens import insert_tokens
from celosia.sim.flow import Step
from celosia.sim.interpreter import Interpreter
from celosia.sim.sparse import encode
from celosia.tb.machine.simulated import VerilatorMachine
from celosia.tb.verify.coverage.covered import covered_config
from celosia.tb.verify.coverage.directed import SOURCE_BYTES, build, companions
from celosia.tb.verify.coverage.functional import STALLS, Goal, goals, reached
from celosia.tb.verify.random_programs import clearing

KIND = "functional"
GOALS = 6
"""Goals of a case."""

MEMORY_BYTES = 1 << 19
_PARAMS = 2 * SOURCE_BYTES
_CODE = 3 * SOURCE_BYTES
_ZEROS = 4 * SOURCE_BYTES
_DUMP = 5 * SOURCE_BYTES
_ROW = 256
_OUTPUT = frozenset({"per_tensor", "wide_out"})


def points(name: str) -> set[str]:
    """Return the names of the functional coverage points of the configuration ``name``.

    A point is a goal (an instruction with a certain flag and a certain size) that is reached with a
    certain timing of external memory. The point's name is the goal's name, a space, and the
    timing's name.
    """
    return {f"{goal} {stall}" for goal in goals(covered_config(name)) for stall in STALLS}


def cases(name: str) -> int:
    """Return the number of cases for all coverage goals of a configuration with all memory timings.

    A case is a program for at most ``GOALS`` goals (combinations of instruction, flag and size),
    with one timing.
    """
    return len(STALLS) * -(-len(goals(covered_config(name))) // GOALS)


def run(case: Case) -> dict[str, Any]:
    """Run a program for up to ``GOALS`` coverage goals with one timing of external memory.

    The result is a dictionary. Its key ``mismatch`` has the first difference from the golden
    machine, or an empty text. Its key ``reached`` has a list of coverage points, each a text of a
    goal and the timing. The list is empty after a mismatch.
    """
    config = covered_config(case["config"])
    part, timing = divmod(case.index, len(STALLS))
    stall = list(STALLS)[timing]
    covered: set[str] = set()
    program = DirectedProgram(config, case.rng())
    for goal in goals(config)[part * GOALS :][:GOALS]:
        program.add(goal)
    golden = Interpreter(config)

    def note(step: Step, _machine: Interpreter) -> None:
        covered.update(reached(step, config))

    golden.on_step = note
    machine = VerilatorMachine(
        config, memory_bytes=MEMORY_BYTES, **STALLS[stall].fields(), limit=20_000_000
    )
    try:
        mismatch = program.compare(golden, machine)
    finally:
        machine.close()
    return {
        "mismatch": mismatch,
        "reached": [] if mismatch else sorted(f"{name} {stall}" for name in covered),
    }


class DirectedProgram:
    """A program for goals of functional coverage, with the initial content of external memory.

    The program begins with instructions that fill the on-chip memories with random data.
    """

    def __init__(self, config: Config, rng: np.random.Generator):
        self.config = config
        self._rng = rng
        self._image = np.zeros(MEMORY_BYTES, np.uint8)
        self._image[:SOURCE_BYTES] = rng.integers(0, 256, SOURCE_BYTES)
        self._image[:SOURCE_BYTES][rng.random(SOURCE_BYTES) < 0.2] = 0
        columns = config.vector.words * config.vector.lanes
        params = param_words(
            rng.integers(-(1 << 20), 1 << 20, columns),
            rng.integers(1 << 29, 1 << 31, columns),
            rng.integers(-20, 3, columns),
            config,
            by_tile=False,
        )
        data, self._param_stride = rows_image(params, config)
        self._param_bytes = params.shape[1]
        self._image[_PARAMS : _PARAMS + len(data)] = np.frombuffer(data, np.uint8)
        self._code = _CODE
        self._program: list[Instruction] = []
        for bank in range(config.scratchpad.banks):
            self._load_bank(bank)
        count = min(config.vector.words, config.bank_bytes // self._param_bytes, 64)
        self._program += [self._load_params(0, count), Instruction(Opcode.PARAMS, {"n": count})]
        self._load_bank(0)

    def _load_bank(self, bank: int) -> None:
        rows = self.config.bank_bytes // _ROW
        place = int(self._rng.integers(SOURCE_BYTES // _ROW - rows + 1)) * _ROW
        operands = {"dram_addr": place, "dram_stride": _ROW, "sp_stride": _ROW}
        operands |= {"sp_addr": bank * self.config.bank_bytes, "m": rows, "row_bytes": _ROW}
        self._program.append(Instruction(Opcode.LOAD, operands))

    def _load_params(self, addr: int, count: int) -> Instruction:
        operands = {"dram_addr": _PARAMS, "dram_stride": self._param_stride, "sp_addr": addr}
        operands |= {"sp_stride": self._param_bytes, "m": count, "row_bytes": self._param_bytes}
        return Instruction(Opcode.LOAD, operands)

    def add(self, goal: Goal) -> None:
        """Append an instruction that reaches a goal of functional coverage.

        If necessary, instructions before it write its inputs. Instructions after it move its result
        to the scratchpad or to external memory, where :meth:`compare` compares the result.
        """
        flags = companions(goal.opcode, goal.flag, self.config)
        sizes = {goal.size: goal.value} if goal.size else {}
        instruction = self._build(goal.opcode, flags, sizes)
        assert instruction is not None, f"no instruction for {goal}"
        value = {name: instruction.operand(name).immediate for name in instruction.operands}
        if goal.opcode == Opcode.DRAIN or "drain" in flags:
            name = "acc" if goal.opcode == Opcode.DRAIN else "i"
            self._sum(value[f"{name}_addr"], value["m"], value["n"])
            if goal.opcode == Opcode.DRAIN and "factors" in flags:
                tiles = -(-value["n"] // self.config.array.cols)
                self._factors(value["params"], tiles if "by_tile" in flags else value["m"])
        elif goal.opcode == Opcode.PARAMS:
            self._program.append(self._load_params(value["i_addr"], value["n"]))
        elif goal.opcode == Opcode.SPARSE:
            instruction = self._coded(instruction, value)
            value = {name: instruction.operand(name).immediate for name in instruction.operands}
        self._program.append(instruction)
        if "followed" in flags:
            self._follow(instruction, value)
        elif goal.opcode in (Opcode.MATMUL, Opcode.SPARSE):
            self._drain(value["acc_addr"], value["m"], value["n"])
        elif goal.opcode == Opcode.PRELOAD:
            self._multiply(value["k"], value["n"])
        elif goal.opcode == Opcode.LOAD:
            self._program.append(self._stored(instruction, value))

    def wait_for_store(self, goal: Goal) -> None:
        """Append a STORE, and a matrix instruction that waits until the STORE has ended.

        The STORE sends a dependency token at its end, and the matrix instruction takes this token.
        Together they cover the circuit that waits for the token. The matrix instruction is that of
        the coverage goal ``goal``.
        """
        operands = {"dram_addr": SOURCE_BYTES, "dram_stride": _ROW, "sp_stride": _ROW}
        operands |= {"m": self.config.bank_bytes // _ROW, "row_bytes": _ROW}
        matrix, store = frozenset({Engine.MATRIX}), frozenset({Engine.STORE})
        self._program.append(Instruction(Opcode.STORE, operands, push=matrix))
        place = len(self._program)
        self.add(goal)
        self._program[place] = replace(self._program[place], pop=store)

    def _build(
        self, opcode: Opcode, flags: frozenset[str], sizes: dict[str, int]
    ) -> Instruction | None:
        return build(opcode, flags, sizes, self.config, self._rng) or build(
            opcode, flags, sizes, self.config, self._rng, least=True
        )

    def _sum(self, addr: int, m: int, n: int) -> None:
        """Leave sums of m rows and n columns at an address of the accumulators."""
        instruction = self._build(Opcode.MATMUL, frozenset(), {"m": m, "n": n})
        if instruction is not None:
            operands = {**instruction.operands, "acc_addr": addr}
            self._program.append(replace(instruction, operands=operands))

    def _factors(self, params: int, m: int) -> None:
        """Let a norm of m random rows leave the factors that ``params`` selects."""
        norm = self._build(Opcode.NORM, frozenset({"rms", "factors"}), {"m": m})
        assert norm is not None, f"no room for a norm of {m} rows"
        self._program.append(replace(norm, operands={**norm.operands, "params": params}))

    def _drain(self, addr: int, m: int, n: int) -> None:
        drain = self._build(Opcode.DRAIN, _OUTPUT, {"m": m, "n": n})
        if drain is None:
            drain = self._build(Opcode.DRAIN, _OUTPUT - {"wide_out"}, {"m": m, "n": n})
        assert drain is not None, f"no room for {m} rows of {n} sums"
        self._program.append(replace(drain, operands={**drain.operands, "acc_addr": addr}))

    def _multiply(self, k: int, n: int) -> None:
        """Show the content of the weight slots."""
        product = self._build(Opcode.MATMUL, frozenset({"resident"}), {"k": k, "n": n})
        assert product is not None, f"no room for a product of {k} rows and {n} columns"
        self._program.append(replace(product, operands={**product.operands, "slot": RING_SLOTS}))
        m, addr = (product.operand(name).immediate for name in ("m", "acc_addr"))
        self._drain(addr, m, n)

    def _coded(self, instruction: Instruction, value: dict[str, int]) -> Instruction:
        """Copy the code of a random sparse matrix to the place that an instruction reads."""
        config, rng = self.config, self._rng
        matrix = rng.integers(-128, 128, (value["k"], value["n"]))
        # The code has as many beats as the instruction says at most.
        matrix[rng.random(matrix.shape) < 0.6] = 0
        code = encode(matrix, config.sparse_lanes, config.array.cols)
        self._image[self._code : self._code + len(code)] = code
        operands = {"dram_addr": self._code, "sp_addr": value["b_addr"]}
        operands |= {"m": 1, "row_bytes": len(code)}
        self._program.append(Instruction(Opcode.LOAD, operands))
        self._code += -(-len(code) // config.mem_bytes) * config.mem_bytes
        beats = len(code) // beat_bytes(config.sparse_lanes) - HEADER_BEATS
        return replace(instruction, operands={**instruction.operands, "beats": beats})

    def _follow(self, instruction: Instruction, value: dict[str, int]) -> None:
        """Add the command announced by the previous one, on other sums and to another place."""
        tiles = -(-value["n"] // self.config.array.cols)
        sums = "acc_addr" if instruction.opcode == Opcode.DRAIN else "i_addr"
        behind = {sums: value[sums] + tiles * value["m"]}
        behind["o_addr"] = value["o_addr"] + value["o_stride"] * value["m"]
        operands = {**instruction.operands, **behind}
        last = replace(instruction, operands=operands, flags=instruction.flags - {"followed"})
        self._program.append(last)

    def _stored(self, instruction: Instruction, value: dict[str, int]) -> Instruction:
        """Return a STORE of the data that a LOAD has read."""
        names = ("sp_addr", "sp_stride", "m", "row_bytes", "dram_stride")
        operands = {name: value[name] for name in names}
        return Instruction(Opcode.STORE, operands | {"dram_addr": SOURCE_BYTES})

    def compare(self, golden: Interpreter, machine: VerilatorMachine) -> str:
        """Run the program on the golden machine and the circuit, and compare all results.

        Return a text that names the first difference or error, or an empty text if there is none.
        """
        config = self.config
        row = min(_ROW, config.bank_bytes)
        dump = {"dram_addr": _DUMP, "dram_stride": row, "sp_stride": row}
        dump |= {"m": config.scratchpad.bytes // row, "row_bytes": row}
        program = [
            *clearing(config, _ZEROS),
            *self._program,
            Instruction(Opcode.STORE, dump),
        ]
        ordered = [
            replace(instruction, pop=instruction.pop | own.pop, push=instruction.push | own.push)
            for instruction, own in zip(insert_tokens(program, config), program, strict=True)
        ]
        words = pack([*ordered, Instruction(Opcode.HALT)])
        reports = []
        for model in (golden, machine):
            model.write_memory(0, self._image.tobytes())
            model.load_program(words)
            try:
                reports.append(model.start())
            except RunError as error:
                return str(error)
        if reports[0].signatures != reports[1].signatures:
            return "Signatures differ"
        if golden.read_memory(0, MEMORY_BYTES) != machine.read_memory(0, MEMORY_BYTES):
            return "External memory differs"
        return ""
