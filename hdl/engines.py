"""Functions that make the engines, memories and host registers of a configuration's machine."""

from collections.abc import Mapping, Sequence

from celosia.arch.config import Config
from celosia.arch.matrix_config import MatrixConfig
from celosia.arch.vector_config import VectorConfig
from celosia.hdl.control.host_port import HostRegisters, counter_names
from celosia.hdl.matrix.matrix import MatrixEngine
from celosia.hdl.memory.accumulator import AccumulatorMemory
from celosia.hdl.memory.load import LoadEngine
from celosia.hdl.memory.scratchpad import READERS, WRITERS, Scratchpad
from celosia.hdl.memory.store import StoreEngine
from celosia.hdl.ports import MachinePorts
from celosia.hdl.sparse.engine import SparseMatrixEngine
from celosia.hdl.vector.vector import VectorEngine


def machine_ports(config: Config) -> MachinePorts:
    """Return the external ports of a configuration's accelerator."""
    return MachinePorts(
        config.memory,
        config.access,
        thermal=config.throttle is not None,
        trace=config.control.trace,
    )


def load_engine(config: Config) -> LoadEngine:
    """Return the load engine of a configuration."""
    return LoadEngine(
        config.memory, config.access, stages=config.stages, level=config.protected("queues")
    )


def store_engine(config: Config) -> StoreEngine:
    """Return the store engine of a configuration."""
    return StoreEngine(config.memory, config.access, stages=config.stages)


def matrix_engine(config: Config) -> MatrixEngine | SparseMatrixEngine:
    """Return a configuration's matrix engine, with a sparse unit if the configuration has one."""
    part = config.part(MatrixConfig)
    return MatrixEngine(part) if config.sparse is None else SparseMatrixEngine(part, config.sparse)


def vector_engine(config: Config) -> VectorEngine:
    """Return the vector engine of a configuration."""
    return VectorEngine(config.part(VectorConfig), config.instructions)


def accumulator_memory(config: Config) -> AccumulatorMemory:
    """Return the accumulator memory of a configuration."""
    return AccumulatorMemory(
        config.accumulators,
        config.array.cols,
        stages=config.stages,
        level=config.protected("accumulators"),
        sleep=config.array.sleep,
        scaled=config.slot_scales > 0,
        throttle=config.throttle is not None,
    )


def written_bytes(config: Config, writer: str) -> int:
    """Return the largest number of bytes in one write of the scratchpad port ``writer``."""
    return config.mem_bytes if writer == "load" else max(2 * config.vector.lanes, config.beat_lanes)


def scratchpad(
    config: Config, readers: Sequence[str] = READERS, writers: Sequence[str] = WRITERS
) -> Scratchpad:
    """Return a configuration's scratchpad, with a port for each of ``readers`` and ``writers``."""
    return Scratchpad(
        config.access,
        {name: written_bytes(config, name) for name in writers},
        readers,
        banks=config.scratchpad.banks,
        bank_bytes=config.bank_bytes,
        stages=config.stages,
        level=config.protected("scratchpad"),
        throttle=config.throttle is not None,
    )


def host_registers(config: Config, widths: Mapping[str, int]) -> HostRegisters:
    """Return the component with the host registers of a configuration's machine.

    ``widths`` maps a counter's name to the width (bits) of the input that is added to the counter.
    The inputs of all other counters have 1 bit.
    """
    return HostRegisters(
        config.control.program_depth,
        {name: widths.get(name, 1) for name in counter_names(config)},
        argmax=config.vector.argmax,
    )
