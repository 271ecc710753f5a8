"""A matrix product whose operands are too large for the scratchpad, streamed from outside.

B is cut into panels of columns, and the sums into chunks of their length: the product of a chunk of
A and a chunk of a panel grows in the accumulators while the next chunks are loaded; a panel that is
complete is drained and stored while the next one is computed. Two buffers for each operand, two
regions of accumulators and two buffers for the result suffice.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass

from arch.config import Config
from arch.errors import InputError
from arch.instruction import Instruction, pack
from arch.isa import DEFINITIONS, Engine, Opcode
from generators.bench.gemm import Gemm, GemmProgram
from generators.program.layout import Bytes, param_words, rows_image
from generators.program.roll import roll

Buffers = dict[str, int]

_CHUNK_WORDS = DEFINITIONS[Opcode.LOAD].words + DEFINITIONS[Opcode.MATMUL].words
CHUNK_CYCLES = 32
"""About what the instructions of a chunk take to fetch."""


@dataclass(frozen=True, kw_only=True)
class Plan:
    """Pieces of a product [m, k] x [k, n], and their places."""

    m: int
    k: int
    n: int
    chunk: int
    """Length of the sums of one chunk; the last may be shorter."""
    panel: int
    """Columns of one panel; the last may be narrower."""
    resident: bool
    """The whole of A stays in the scratchpad; each of its chunks is loaded once."""
    regions: int
    """Regions of accumulators, and buffers of the result: 1 or 2."""
    addresses: Buffers
    """Scratchpad addresses of A0, A1, B0, B1, C0, C1."""
    cycles: int
    """About how many cycles it takes."""

    @property
    def chunks(self) -> int:
        """Chunks of each panel."""
        return -(-self.k // self.chunk)

    @property
    def panels(self) -> int:
        """Panels of B."""
        return -(-self.n // self.panel)


def compile_stream(gemm: Gemm, config: Config) -> GemmProgram:
    """Return the program of a product whose operands and result lie in external memory.

    Raises :class:`InputError` where no way to cut it fits the
    configuration.
    """
    params = param_words(gemm.bias, gemm.multiplier, gemm.shift, config, by_tile=True)
    if len(params) > config.param_depth:
        raise InputError(
            f"The product needs {len(params)} parameter words, but param_depth is "
            f"{config.param_depth}"
        )
    for plan in plans(gemm, config):
        # No loop makes less of a program than two panels.
        if min(plan.panels, 2) * plan.chunks * _CHUNK_WORDS > config.program_depth:
            continue
        if params.size > config.bank_bytes - plan.addresses["B1"] % config.bank_bytes:
            continue
        program = _program(gemm, config, plan, params)
        if len(program.words) <= config.program_depth:
            return program
    raise InputError(
        f"No way to stream a product of m = {gemm.m}, k = {gemm.k} and n = {gemm.n} fits "
        f"configuration {config.name}"
    )


def plans(gemm: Gemm, config: Config) -> list[Plan]:
    """Return every way to cut a product that fits the memories, the fastest first."""
    m, k, n = gemm.m, gemm.k, gemm.n
    found = []
    for chunk in _cuts(k, math.lcm(config.rows, config.mem_bytes)):
        for panel in _cuts(n, math.lcm(config.cols, config.mem_bytes)):
            for regions in (2, 1):
                if m * -(-panel // config.cols) > config.acc_depth // regions:
                    continue
                for resident in (True, False):
                    addresses = _place(gemm, min(chunk, k), min(panel, n), resident, config)
                    if addresses is None:
                        continue
                    plan = Plan(
                        m=m,
                        k=k,
                        n=n,
                        chunk=chunk,
                        panel=panel,
                        resident=resident,
                        regions=regions,
                        addresses=addresses,
                        cycles=_estimate((m, k, n), chunk, panel, resident, regions, config),
                    )
                    found.append(plan)
    return sorted(found, key=lambda plan: plan.cycles)


def _cuts(size: int, unit: int) -> list[int]:
    """Return the lengths of equal parts of a size, in whole units."""
    units = -(-size // unit)
    return sorted({-(-units // parts) * unit for parts in range(1, units + 1)})


def _place(gemm: Gemm, chunk: int, panel: int, resident: bool, config: Config) -> Buffers | None:
    """Return where each buffer lies, each inside one bank, A and B apart; None without room."""
    m, k = gemm.m, gemm.k
    line, bank = config.line_bytes, config.bank_bytes
    sizes = {"B": chunk * panel, "C": m * panel, "A": m * (k if resident else chunk)}
    sizes = {name: -(-size // line) * line for name, size in sizes.items()}
    if config.scratchpad_banks >= 4:
        order = [["A0"], ["A1"], ["B0", "C0"], ["B1", "C1"]]
    elif config.scratchpad_banks == 2:
        order = [["A0", "A1", "C0", "C1"], ["B0", "B1"]]
    else:
        order = [["A0", "A1", "C0", "C1", "B0", "B1"]]
    addresses = {}
    for index, names in enumerate(order):
        used = 0
        for name in names:
            addresses[name] = index * bank + used
            if not (resident and name == "A1"):
                used += sizes[name[0]]
        # A whole A may go on in the second bank, if no access crosses over.
        whole = resident and names == ["A0"] and gemm.a.shape[1] % line == 0
        free = 2 * bank if whole else bank
        if used > free:
            return None
    return addresses


def _estimate(
    shape: tuple[int, int, int],
    chunk: int,
    panel: int,
    resident: bool,
    regions: int,
    config: Config,
) -> int:
    """Return about how many cycles a product takes, from the start to the end."""
    m, k, n = shape
    chunks, panels = -(-k // chunk), -(-n // panel)
    tiles = -(-chunk // config.rows) * -(-panel // config.cols)
    words = chunk * -(-panel // config.mem_bytes)
    a_words = m * -(-chunk // config.mem_bytes)
    drain = m * -(-panel // config.cols) * config.lane_groups
    store = m * -(-panel // config.mem_bytes)
    # A little for every chunk, so that of two ways the one with fewer instructions is taken.
    compute = max(m, config.rows) * tiles + CHUNK_CYCLES
    steady = max(compute, words + (0 if resident else a_words), -(-(drain + store) // chunks))
    first = max(compute, words + a_words)
    total = words + a_words + chunks * first + chunks * (panels - 1) * steady + drain + store
    if regions == 1:  # the array waits for the drain, and the drain for the store
        total += (panels - 1) * (drain + store)
    return total


def _program(gemm: Gemm, config: Config, plan: Plan, params: Bytes) -> GemmProgram:
    a_bytes, a_stride = rows_image(gemm.a.astype("int8").view("uint8"), config)
    b_bytes, b_stride = rows_image(gemm.b.astype("int8").view("uint8"), config)
    p_bytes, p_stride = rows_image(params, config)
    c_stride = -(-gemm.n // config.mem_bytes) * config.mem_bytes
    image = a_bytes + b_bytes + p_bytes
    outside = _Outside(
        a=0,
        a_stride=a_stride,
        b=len(a_bytes),
        b_stride=b_stride,
        c=len(image),
        c_stride=c_stride,
    )
    load_params = Instruction(
        Opcode.LOAD,
        {
            "dram_addr": len(a_bytes) + len(b_bytes),
            "dram_stride": p_stride,
            "sp_addr": plan.addresses["B1"],
            "sp_stride": params.shape[1],
            "m": params.shape[0],
            "row_bytes": params.shape[1],
        },
        push=frozenset({Engine.VECTOR}),
    )
    more = plan.chunks * plan.panels > 1
    take_params = Instruction(
        Opcode.PARAMS,
        {"i_addr": plan.addresses["B1"], "n": len(params)},
        pop=frozenset({Engine.LOAD}),
        push=frozenset({Engine.LOAD} if more else ()),
    )
    panels = [
        list(_panel(gemm, config, plan, outside, panel, [load_params, take_params]))
        for panel in range(plan.panels)
    ]
    words = pack([*roll(panels), Instruction(Opcode.HALT)])
    return GemmProgram(
        words=words,
        load_pc=None,
        compute_pc=0,
        store_pc=None,
        image=image,
        result_addr=len(image),
        result_stride=c_stride,
        m=gemm.m,
        n=gemm.n,
    )


@dataclass(frozen=True, kw_only=True)
class _Outside:
    """Addresses of the matrices in external memory, row by row."""

    a: int
    a_stride: int
    b: int
    b_stride: int
    c: int
    c_stride: int


def _panel(
    gemm: Gemm,
    config: Config,
    plan: Plan,
    outside: _Outside,
    panel: int,
    params: list[Instruction],
) -> Iterator[Instruction]:
    """Yield the instructions of a panel, in the first one those for the parameters too.

    Tokens: a buffer or region is free when the instruction that used it last gives a token back.
    """
    column = panel * plan.panel
    width = min(plan.panel, gemm.n - column)
    region = panel % plan.regions
    acc = region * (config.acc_depth // plan.regions)
    flags = {"b_transpose"} if gemm.b_transpose else set()
    for part in range(plan.chunks):
        index = panel * plan.chunks + part
        start = part * plan.chunk
        length = min(plan.chunk, gemm.k - start)
        free = {Engine.MATRIX} if index >= 2 else set()
        # Rows and bytes of both pieces as they are stored, and where they begin in their matrices.
        a_rows, a_bytes, a_from = (gemm.m, length, start)
        b_rows, b_bytes, b_from = length, width, start * outside.b_stride + column
        if gemm.b_transpose:
            b_rows, b_bytes, b_from = width, length, column * outside.b_stride + start
        a_addr, a_stride = plan.addresses[f"A{index % 2}"], a_bytes
        b_addr = plan.addresses[f"B{index % 2}"]
        if plan.resident:
            a_stride = gemm.a.shape[1]
            a_addr = plan.addresses["A0"] + start
        if panel == 0 or not plan.resident:
            yield Instruction(
                Opcode.LOAD,
                {
                    "dram_addr": outside.a + a_from,
                    "dram_stride": outside.a_stride,
                    "sp_addr": a_addr,
                    "sp_stride": a_stride,
                    "m": a_rows,
                    "row_bytes": a_bytes,
                },
                pop=frozenset(() if plan.resident else free),
            )
        b_free = free if plan.resident else set()
        if index == 1:
            b_free = {Engine.VECTOR}  # the parameters lay there
        yield Instruction(
            Opcode.LOAD,
            {
                "dram_addr": outside.b + b_from,
                "dram_stride": outside.b_stride,
                "sp_addr": b_addr,
                "sp_stride": b_bytes,
                "m": b_rows,
                "row_bytes": b_bytes,
            },
            pop=frozenset(b_free),
            push=frozenset({Engine.MATRIX}),
        )
        pop, push = {Engine.LOAD}, set()
        if part == 0 and panel >= plan.regions:
            pop.add(Engine.VECTOR)
        if part == plan.chunks - 1:
            push.add(Engine.VECTOR)
        if index + 2 < plan.chunks * plan.panels:
            push.add(Engine.LOAD)
        yield Instruction(
            Opcode.MATMUL,
            {
                "a_addr": a_addr,
                "a_stride": a_stride,
                "b_addr": b_addr,
                "b_stride": b_bytes,
                "acc_addr": acc,
                "acc_stride": gemm.m,
                "m": gemm.m,
                "k": length,
                "n": width,
                "a_zero": gemm.a_zero,
                "b_zero": gemm.b_zero,
            },
            frozenset(flags),
            pop=frozenset(pop),
            push=frozenset(push),
        )
        if index == 0:
            yield from params
    c_addr = plan.addresses[f"C{region}"]
    later = panel + plan.regions < plan.panels
    yield Instruction(
        Opcode.DRAIN,
        {
            "acc_addr": acc,
            "acc_stride": gemm.m,
            "o_addr": c_addr,
            "o_stride": width,
            "o_zero": gemm.o_zero,
            "m": gemm.m,
            "n": width,
            "params": column // config.cols * config.lane_groups,
        },
        pop=frozenset({Engine.MATRIX} | ({Engine.STORE} if panel >= plan.regions else set())),
        push=frozenset({Engine.STORE} | ({Engine.MATRIX} if later else set())),
    )
    yield Instruction(
        Opcode.STORE,
        {
            "dram_addr": outside.c + column,
            "dram_stride": outside.c_stride,
            "sp_addr": c_addr,
            "sp_stride": width,
            "m": gemm.m,
            "row_bytes": width,
        },
        pop=frozenset({Engine.VECTOR}),
        push=frozenset({Engine.VECTOR} if later else ()),
    )
