"""Conversion between values of an Amaranth shape and the bits of a port."""

from typing import Any

from amaranth.hdl import Shape, ShapeLike
from amaranth.lib import data


def pack(shape: ShapeLike, value: Any) -> int:
    """Return the bits of a value of an Amaranth shape, as an unsigned integer.

    ``value`` is an integer or, if ``shape`` is a layout, a dictionary or list that its method
    ``const`` accepts.
    """
    if isinstance(shape, data.Layout):
        return int(shape.const(value).as_bits())
    return int(value) & ((1 << Shape.cast(shape).width) - 1)


def unpack(shape: ShapeLike, bits: int) -> Any:
    """Return the value that ``bits`` represent in an Amaranth shape, the inverse of :func:`pack`.

    The value is an integer, a list for an array, or a dictionary from field name to value.
    """
    if isinstance(shape, data.StructLayout):
        return {name: _field(field, bits) for name, field in shape}
    if isinstance(shape, data.ArrayLayout):
        return [_field(field, bits) for _, field in shape]
    width, is_signed = Shape.cast(shape).width, Shape.cast(shape).signed
    value = bits & ((1 << width) - 1)
    return value - (1 << width) if is_signed and value >> (width - 1) else value


def _field(field: data.Field, bits: int) -> Any:
    return unpack(field.shape, bits >> field.offset & ((1 << field.width) - 1))
