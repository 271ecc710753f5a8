"""From a trained model to a program and its memory image, for any configuration that has room."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from arch.config import Config
from arch.isa import DEFINITIONS, Engine
from generators.allocate import allocate, live_bytes, uses
from generators.calibrate import Samples
from generators.description import ModelDescription
from generators.draft import LENGTH_REGISTER, Node, Repeat, Written, arrange, flatten
from generators.graph import Pool, QuantizedModel
from generators.image import Bytes, Piece
from generators.loops import least_words, lines, with_barriers, words
from generators.lower import Lowered, lower
from generators.lower_rows import pool_bytes
from generators.lowering import Limits
from generators.quantize import Quantization, quantize_model
from generators.weights import Weights


class Machine(Protocol):
    """What a request needs of a machine; the golden one and every simulated one have it."""

    def write_memory(self, addr: int, data: bytes) -> None:
        """Write bytes to external memory."""

    def set_register(self, number: int, value: int) -> None:
        """Set a register."""


SMALLEST_BLOB = 256
"""Where loads of weights are no longer cut smaller (bytes)."""

ATTEMPTS = (
    (False, False, False),
    (True, False, False),
    (False, True, False),
    (True, True, False),
    (True, False, True),
    (True, True, True),
)
"""What to make loops of, in order of preference: layers, heads, parts of a product."""


@dataclass(frozen=True, kw_only=True)
class Options:
    """Choices that change a program's numbers or its speed."""

    percentile: float = 100.0
    """Share of a tensor's values in calibration that its range covers (percent)."""
    per_channel: bool = True
    """Whether weights have a scale for each output channel, and not one for each tensor."""
    skip_zero_tiles: bool = False
    """Whether tiles of weights that are all zero are found and masked."""


@dataclass(frozen=True)
class Request:
    """What one inference needs before its start."""

    writes: tuple[tuple[int, bytes], ...]
    """Bytes for external memory, each at an address."""
    registers: dict[int, int]
    """Values of registers."""

    def give(self, machine: Machine) -> None:
        """Write it all to a machine."""
        for addr, data in self.writes:
            machine.write_memory(addr, data)
        for number, value in self.registers.items():
            machine.set_register(number, value)


@dataclass(frozen=True)
class CompiledModel:
    """A model as a machine runs it.

    Write ``image`` to external memory from address 0 and load ``words``. Then, for each
    inference: do what ``request`` asks for, start at word 0, and give the ``output_count`` bytes
    at ``output_addr`` to ``read_output``.
    """

    quantized: QuantizedModel
    config: Config
    words: list[int]
    image: Bytes
    input_piece: Piece
    output_piece: Piece
    pool_piece: Piece | None
    written: list[Written]
    """What each vector instruction writes, in the order in which they run."""
    loops: int
    """Loops in the program."""

    @property
    def macs(self) -> int:
        """Useful products of one inference."""
        return self.quantized.macs

    @property
    def memory_bytes(self) -> int:
        """External memory that the model takes (bytes)."""
        return max(len(self.image), self.output_addr + self.output_count)

    @property
    def input_addr(self) -> int:
        """External byte address of the input."""
        return self.input_piece.addr

    @property
    def output_addr(self) -> int:
        """External byte address of the output."""
        return self.output_piece.addr

    @property
    def output_count(self) -> int:
        """Bytes of the output."""
        return self.quantized.output.bytes

    def request(self, values: NDArray[np.floating]) -> "Request":
        """Return what an inference needs before its start.

        ``values`` is one input, [tokens, features], with fewer rows where the model takes
        variable lengths; without linear embedding the rows are those that
        :func:`generators.embedding.lookup` gives. Raises :class:`ValueError` where it has another
        shape.
        """
        model, source = self.quantized.description, self.quantized.input
        rows, shape = len(values), np.shape(values)
        short = model.variable and 1 <= rows <= source.rows
        if shape[1:] != (source.columns,) or not (short or rows == source.rows):
            most = "at most " if model.variable else ""
            raise ValueError(
                f"An input of model {model.name} must have the shape "
                f"[{most}{source.rows}, {source.columns}], not {list(shape)}"
            )
        data = np.zeros((source.rows, source.columns))
        data[:rows] = values
        length = model.sequence - source.rows + rows
        writes = [(self.input_addr, self.quantized.quantize_input(data).tobytes())]
        if self.pool_piece is not None:
            ops = [op for op in self.quantized.after if isinstance(op, Pool)]
            found = pool_bytes(ops[0], length, self.config)
            writes.append((self.pool_piece.addr, found.tobytes()))
        registers = {LENGTH_REGISTER: length} if model.variable else {}
        return Request(tuple(writes), registers)

    def output_integers(self, data: bytes) -> NDArray[np.int64]:
        """Return one output's integers, [rows, columns]."""
        output = self.quantized.output
        values = np.frombuffer(data, "<i2" if output.wide else np.int8)
        return values.reshape(output.rows, output.columns).astype(np.int64)

    def read_output(self, data: bytes) -> NDArray[np.float64]:
        """Return one output, [rows, columns], in the model's own units."""
        return self.quantized.dequantize_output(self.output_integers(data))


def compile_model(
    description: ModelDescription,
    weights: Weights,
    calibration_inputs: Samples,
    config: Config,
    options: Options | None = None,
) -> CompiledModel:
    """Return a model's program and memory image.

    ``calibration_inputs`` are inputs as :func:`generators.float_model.forward` takes them, one
    array each or all in one. Of all ways to cut the model, the one
    with the fewest loops, the largest cuts and the earliest loads that fits is taken.

    Raises :class:`ValueError` where the model cannot run on the configuration; where it is too
    large, the message names the field.
    """
    options = options or Options()
    if options.skip_zero_tiles and not config.tile_skip:
        raise ValueError(f"Skipping zero tiles needs tile_skip, which {config.name} leaves out")
    quantized = quantize_model(
        description,
        weights,
        calibration_inputs,
        config,
        Quantization(options.percentile, options.per_channel),
    )
    return compile_quantized(quantized, config, options)


def compile_quantized(quantized: QuantizedModel, config: Config, options: Options) -> CompiledModel:
    """Return the program of a model that is quantized for the configuration.

    Raises :class:`ValueError` as :func:`compile_model`.
    """
    refusals = []
    for loop_layers, loop_heads, loop_parts in ATTEMPTS:
        barriers = loop_layers or loop_heads or loop_parts
        blob = config.bank_bytes
        while blob >= min(SMALLEST_BLOB, config.bank_bytes):
            limits = Limits(
                blob_bytes=blob,
                block_bytes=config.bank_bytes,
                loop_heads=loop_heads,
                loop_parts=loop_parts,
                barriers=barriers,
                skip_zero_tiles=options.skip_zero_tiles,
            )
            lowered = lower(quantized, config, limits)
            found = _place(quantized, lowered, config, loop_layers)
            if isinstance(found, CompiledModel):
                return found
            refusals.append(found)
            if found.stage == _TOO_LONG:
                # Smaller loads would make the program longer still.
                break
            blob //= 2
    raise ValueError(_best(refusals).text)


_TOO_VARIED, _TOO_LARGE, _TOO_LONG = range(3)


@dataclass(frozen=True)
class _Refusal:
    """Why an attempt failed, and how far it was from fitting."""

    stage: int
    excess: int
    text: str


def _best(refusals: Sequence[_Refusal]) -> _Refusal:
    """Return the refusal that came furthest."""
    return min(refusals, key=lambda refusal: (-refusal.stage, refusal.excess))


def _place(
    quantized: QuantizedModel, lowered: Lowered, config: Config, loop_layers: bool
) -> CompiledModel | _Refusal:
    """Return the program of a lowered model with the earliest loads that fit."""
    name = quantized.description.name
    refusals = []
    longest = max(len(section) for section in lowered.layers) - 1
    for ahead in sorted({min(distance, longest) for distance in (4, 2, 1, 0)}, reverse=True):
        nodes = _nodes(lowered, ahead, loop_layers)
        least = least_words(nodes)
        if least > config.program_depth:
            return _too_long(name, least, config)
        drafts = list(flatten(nodes))
        used = uses(drafts)
        addresses = allocate(used, lowered.sizes, config)
        if addresses is None:
            needed = live_bytes(used, lowered.sizes)
            largest = max(lowered.sizes, key=lambda buffer: lowered.sizes[buffer])
            text = (
                f"Model {name} needs {needed} scratchpad bytes at once and {largest} of "
                f"{lowered.sizes[largest]} bytes in one bank, but scratchpad_bytes is "
                f"{config.scratchpad_bytes} in banks of {config.bank_bytes}"
            )
            refusals.append(_Refusal(_TOO_LARGE, needed, text))
            continue
        program = lines(nodes, addresses, config)
        made = None if program is None else words(program, config)
        if made is None:
            text = f"The loops of model {name} differ in more than the registers can hold"
            return _Refusal(_TOO_VARIED, 0, text)
        if len(made) > config.program_depth:
            return _too_long(name, len(made), config)
        written = [draft.written for draft in drafts if draft.written is not None]
        vector = [d for d in drafts if DEFINITIONS[d.opcode].engine == Engine.VECTOR]
        assert len(written) == len(vector)
        return CompiledModel(
            quantized,
            config,
            made,
            lowered.image,
            lowered.input,
            lowered.output,
            lowered.pool,
            written,
            sum(isinstance(node, Repeat) for node in nodes),
        )
    return _best(refusals)


def _too_long(name: str, least: int, config: Config) -> _Refusal:
    text = (
        f"Model {name} needs a program of at least {least} words, but program_depth is "
        f"{config.program_depth}"
    )
    return _Refusal(_TOO_LONG, least, text)


def _nodes(lowered: Lowered, ahead: int, loop_layers: bool) -> list[Node]:
    """Return the whole program, with loops as asked."""
    sections = [lowered.before, *lowered.layers, lowered.after]
    before, *layers, after = arrange(sections, ahead, across=not loop_layers)
    if loop_layers:
        return with_barriers([*before, Repeat(layers), *after])
    return with_barriers([*before, *(node for layer in layers for node in layer), *after])
