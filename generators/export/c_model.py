"""A compiled encoder in C99: program, memory image and tensors as constant arrays."""

from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from celosia.arch.formats import OPERAND_BITS
from celosia.generators.export.c_source import (
    WIDTH,
    Samples,
    array,
    identifier,
    initializer,
    model_files,
    string,
    words,
)
from celosia.generators.export.manifest import register_offset
from celosia.generators.graph.tensors import Tensor
from celosia.generators.runtime.host import Host, Request


def c_files(
    compiled: Host,
    inputs: Sequence[NDArray[np.float32]],
    outputs: Sequence[bytes],
    names: Sequence[str] = (),
    bits: int = OPERAND_BITS,
) -> dict[str, str | bytes]:
    """Return the C files of a compiled encoder (model, samples, driver) by file name.

    - ``inputs``, ``outputs``: the samples, and the output bytes that the driver expects of them.
    - ``names``: labels of the output's columns.
    - ``bits``: number of upper bits that the exported program reads of each weight. Less than 8
      needs weights that are stored as bit planes.
    """
    image = compiled.image.tobytes()
    start, again = (compiled.run(again=kept, bits=bits).entry for kept in (False, True))
    requests = {count: compiled.request_at(count) for count in compiled.writes}
    rows = [
        f"    {{{count}, {len(request.registers)}, {len(request.writes)}, "
        f"{_reference('settings', count, bool(request.registers))}, "
        f"{_reference('pieces', count, bool(request.writes))}}},"
        for count, request in requests.items()
    ]
    arrays = [
        *array("static const uint32_t image", words(image)),
        *(line for item in requests.items() for line in _request(*item)),
        *array("static const char *const labels", map(string, names), 4),
        "static const celosia_request_t requests[] = {",
        *rows,
        "};\n",
    ]
    fields = [
        f".name = {string(compiled.name)},",
        ".program = program,",
        f".program_words = {len(compiled.words)},",
        f".start = {compiled.entries[start].pc},",
        f".again = {compiled.entries[again].pc},",
        ".image = image,",
        f".image_bytes = {len(image)},",
        f".memory_bytes = {compiled.memory_bytes},",
        f".input = {_tensor(compiled.input, compiled.input_addr)},",
        f".output = {_tensor(compiled.output, compiled.output_addr)},",
        ".requests = requests,",
        f".request_count = {len(rows)},",
        f".labels = {'labels' if names else 'NULL'},",
    ]
    return model_files(compiled, ["celosia"], arrays, fields, _samples(compiled, inputs, outputs))


def _request(rows: int, request: Request) -> list[str]:
    """Return the arrays of registers and memory writes for one number of rows."""
    lines = []
    for index, (_, data) in enumerate(request.writes):
        values = (str(byte) for byte in data)
        lines += array(f"static const uint8_t bytes_{rows}_{index}", values, 16)
    settings = (
        f"{{{register_offset(f'R{number}')}, {value}u}}"
        for number, value in request.registers.items()
    )
    lines += array(f"static const celosia_setting_t settings_{rows}", settings)
    pieces = (
        f"{{{addr}, {len(data)}, bytes_{rows}_{index}}}"
        for index, (addr, data) in enumerate(request.writes)
    )
    return lines + array(f"static const celosia_piece_t pieces_{rows}", pieces, 4)


def _reference(kind: str, rows: int, exists: bool) -> str:
    return f"{kind}_{rows}" if exists else "NULL"


def _samples(
    compiled: Host, inputs: Sequence[NDArray[np.float32]], outputs: Sequence[bytes]
) -> Samples:
    """Return the code of the samples; shorter inputs are padded with 0."""
    name, entry, output = identifier(compiled.name), compiled.input, compiled.output
    upper, longest = name.upper(), entry.rows * entry.columns
    sizes = f"""\
#define {upper}_INPUTS {longest} /* elements of the longest input */
#define {upper}_OUTPUTS {output.rows * output.columns}
#define {upper}_SAMPLES {len(inputs)}

typedef {_type(entry)} {name}_input_t;
typedef {_type(output)} {name}_output_t;
"""
    declarations = [
        f"const float {name}_sample_inputs[{upper}_SAMPLES][{upper}_INPUTS]",
        f"const uint32_t {name}_sample_rows[{upper}_SAMPLES]",
        f"const {name}_output_t {name}_sample_outputs[{upper}_SAMPLES][{upper}_OUTPUTS]",
    ]
    lines = [f"{declarations[0]} = {{"]
    for values in inputs:
        flat = np.zeros(longest, np.float32)
        flat[: values.size] = values.ravel()
        lines += _row(f"{float(value).hex()}f" for value in flat)
    lines += ["};\n", f"{declarations[1]} = {initializer(map(len, inputs))};\n"]
    lines.append(f"{declarations[2]} = {{")
    for data in outputs:
        integers = np.frombuffer(data[: compiled.output_count], "<i2" if output.wide else np.int8)
        lines += _row(map(str, integers))
    declared = "".join(f"extern {declaration};\n" for declaration in declarations)
    comment = "/* Inputs, rows of them, and the outputs that are expected. */\n"
    return Samples(sizes, comment + declared, [*lines, "};\n"])


def _row(values: Iterable[str]) -> list[str]:
    """Return the source lines of one row of a table."""
    items = list(values)
    places = range(0, len(items), WIDTH)
    return [
        "    {",
        *(f"        {', '.join(items[place : place + WIDTH])}," for place in places),
        "    },",
    ]


def _tensor(tensor: Tensor, addr: int) -> str:
    """Return the initializer of a tensor; its scale is written exactly."""
    values = (addr, tensor.rows, tensor.columns, tensor.width, tensor.zero, tensor.scale.hex())
    return initializer(values)


def _type(tensor: Tensor) -> str:
    """Return the C type of a tensor's elements."""
    return "int16_t" if tensor.wide else "int8_t"
