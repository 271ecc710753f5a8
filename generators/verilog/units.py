"""The circuits that can be generated separately; each has a unit name, which selects it."""

from collections.abc import Callable

from amaranth.lib.wiring import Component

from celosia.arch.config import Config
from celosia.arch.errors import check_known
from celosia.arch.matrix_config import MatrixConfig
from celosia.arch.records import Sparse
from celosia.arch.sparse import ENTRY_WIDTH
from celosia.hdl.arithmetic.reciprocal import Reciprocal, ReciprocalSqrt
from celosia.hdl.arithmetic.requantize import Requantizer
from celosia.hdl.bus.axi4 import Axi4Bridge
from celosia.hdl.bus.axi4_lite import Axi4LiteControl
from celosia.hdl.bus.bus import BusAddress
from celosia.hdl.bus.control import CONTROLS, ControlledAccelerator
from celosia.hdl.bus.wishbone import WishboneBridge
from celosia.hdl.bus.wishbone_control import WishboneControl
from celosia.hdl.bus_accelerator import BRIDGES, BusAccelerator
from celosia.hdl.control.dispatch import Dispatch
from celosia.hdl.control.sequencer import Sequencer
from celosia.hdl.engines import (
    accumulator_memory,
    load_engine,
    scratchpad,
    store_engine,
    vector_engine,
)
from celosia.hdl.functions.addnorm import AddNormUnit
from celosia.hdl.functions.argmax import ArgmaxUnit
from celosia.hdl.functions.function_table import FunctionTable
from celosia.hdl.functions.rotary import RotaryUnit
from celosia.hdl.functions.softmax import SoftmaxUnit
from celosia.hdl.functions.table import LookupTable
from celosia.hdl.machine import machine_component
from celosia.hdl.matrix.decoder import WeightDecoder
from celosia.hdl.matrix.matrix import MatrixEngine
from celosia.hdl.matrix.systolic import SystolicArray
from celosia.hdl.matrix.tree import TreeArray
from celosia.hdl.sparse.sparse import SparseUnit

RECIPROCAL_WIDTH = 32
"""Operand width of a separately generated reciprocal (bits)."""

_FORMATS = "int4,ternary"


def sparse_lanes(config: Config) -> int:
    """Return the number of lanes of a zero-skip unit that is generated separately.

    The number is the configuration's ``sparse_lanes``. If that is 0, it is the number of sparse
    weight entries that fit in one scratchpad line.
    """
    return config.sparse_lanes or 8 * config.line_bytes // ENTRY_WIDTH


def with_formats(config: Config) -> Config:
    """Return a configuration that has weight formats.

    If ``config`` has weight formats, the result is ``config`` itself. Otherwise, the result is a
    copy with ternary and INT4 weights.
    """
    return config if config.formats else config.replace(weight_formats=_FORMATS)


UNITS: dict[str, Callable[[Config], Component]] = {
    "accelerator": machine_component,
    "matrix_engine": lambda config: MatrixEngine(config.part(MatrixConfig)),
    "systolic_array": lambda config: SystolicArray(config.part(MatrixConfig)),
    "tree_array": lambda config: TreeArray(config.replace(array="tree").part(MatrixConfig)),
    "weight_decoder": lambda config: WeightDecoder(with_formats(config).part(MatrixConfig)),
    "accumulators": accumulator_memory,
    "sparse_unit": lambda config: SparseUnit(
        config.part(MatrixConfig),
        Sparse(lanes=sparse_lanes(config), longest_row=config.sparse_depth),
    ),
    "vector_engine": vector_engine,
    "softmax": lambda config: SoftmaxUnit(
        config.beat_lanes,
        config.vector.longest_row,
        factors=config.row_factors,
        parity=config.protected("queues") != "none",
    ),
    "addnorm": lambda config: AddNormUnit(
        lanes=config.vector.lanes,
        max_row=config.vector.longest_row,
        parity=config.protected("queues") != "none",
    ),
    "requantizer": lambda config: Requantizer(
        config.vector.multiplier_width, config.control.registered
    ),
    "rotary": lambda config: RotaryUnit(
        2 * -(-config.vector.lanes // 2), config.array.operand_width
    ),
    "argmax": lambda config: ArgmaxUnit(config.vector.lanes),
    "table": lambda config: LookupTable(config.vector.lanes, config.table_slots),
    "function_table": lambda config: FunctionTable(
        config.vector.lanes, config.table_slots, config.array.operand_width
    ),
    "reciprocal": lambda _config: Reciprocal(RECIPROCAL_WIDTH),
    "rsqrt": lambda _config: ReciprocalSqrt(RECIPROCAL_WIDTH),
    "scratchpad": scratchpad,
    "axi4_bridge": lambda config: Axi4Bridge(config.memory, BusAddress.for_config(config)),
    "wishbone_bridge": lambda config: WishboneBridge(config.memory, BusAddress.for_config(config)),
    "axi4_lite_control": lambda _config: Axi4LiteControl(),
    "wishbone_control": lambda _config: WishboneControl(),
    "load_engine": load_engine,
    "store_engine": store_engine,
    "sequencer": lambda config: Sequencer(config.control, config.instructions),
    "dispatch": lambda config: Dispatch(config.control),
}
"""Constructor of each unit from a configuration."""


def make_unit(name: str, config: Config) -> Component:
    """Return the circuit of the unit ``name``, constructed for a configuration.

    Raises :class:`InputError` if ``name`` is not a key of ``UNITS``.
    """
    check_known("unit", name, UNITS)
    return UNITS[name](config)


BUSES = ("native", *BRIDGES)
"""Protocols of the accelerator's memory port; native is the port itself."""


CONTROL_BUSES = ("native", *CONTROLS)
"""Protocols of the accelerator's host port; native is the port itself."""


def make_accelerator(
    config: Config, bus: str, addr_width: int, base: int, control: str = "native"
) -> Component:
    """Return the accelerator with its memory port on ``bus`` and its host port on ``control``.

    The bus ``native`` stands for the accelerator's own port. ``addr_width`` is the width of a byte
    address on the memory bus (bits). ``base`` is the bus address of byte 0 of external memory.
    Raises :class:`InputError` if an argument is invalid.
    """
    check_known("bus", bus, BUSES)
    check_known("control", control, CONTROL_BUSES)
    if bus == "native":
        accelerator: Component = machine_component(config)
    else:
        accelerator = BusAccelerator(config, bus, BusAddress.for_config(config, addr_width, base))
    return accelerator if control == "native" else ControlledAccelerator(accelerator, control)
