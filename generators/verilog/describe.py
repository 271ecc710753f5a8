"""Descriptions of a component's ports and parameters, from its signature and docstrings."""

import ast
import dataclasses
import enum
import inspect
import re
import textwrap
from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import Any

from amaranth.hdl import Shape
from amaranth.lib import data, stream, wiring

from celosia.arch.config import Config, tables
from celosia.arch.matrix_config import MatrixConfig
from celosia.arch.vector_config import VectorConfig
from celosia.generators.verilog.names import free_name

_ROLE = re.compile(r":\w+:`(?:\w+\.)*(\w+)`")
"""A reference of a docstring, such as to a class."""
_IMPLICIT = {
    "clk": "clock; everything happens at its rising edge",
    "rst": "reset, synchronous, active high",
}


def summary(thing: object) -> str:
    """Return the first sentence of an object's docstring in one line, without the full stop."""
    sentences = _sentences(_doc(thing))
    return sentences[0].rstrip(".") if sentences else ""


def parameters(component: wiring.Component) -> dict[str, str]:
    """Return the constructor arguments of a component as text, by name.

    Only integers, texts, truth values, enumeration members, shapes and short lists of integers are
    included.
    """
    texts = {}
    for name in inspect.signature(type(component)).parameters:
        value = getattr(component, name, getattr(component, f"_{name}", None))
        text = _parameter(value)
        if text is not None:
            texts[name] = text
    return texts


def configuration(component: wiring.Component) -> list[str]:
    """Return a component's attribute ``config`` as a list of lines of TOML text.

    If the attribute is only a part of a configuration, the lines are those of this part.
    """
    config = getattr(component, "config", None)
    if isinstance(config, Config):
        return config.replace(name="").to_toml().splitlines()[1:]
    if not isinstance(config, MatrixConfig | VectorConfig):
        return []
    records = {each.name: getattr(config, each.name) for each in dataclasses.fields(config)}
    used = {name: record for name, record in records.items() if record is not None}
    return tables(used).splitlines()


def meanings(component: wiring.Component) -> dict[str, str]:
    """Return a description of each port by its name in Verilog, clock and reset included.

    A description comes from the string under the port's annotation, the component's docstring, or
    the component's attribute ``port_meanings``.
    """
    texts, fields = dict(_IMPLICIT), _field_texts(type(component))
    for path, text in _walk(component.signature, _own_doc(component), (), fields):
        texts[free_name("__".join(path))] = text
    return texts | getattr(component, "port_meanings", {})


def groups(component: wiring.Component) -> dict[str, str]:
    """Return a description of each interface of a component, by the interface's name.

    An interface is a group of ports whose names begin with the interface's name. Streams are left
    out. A description comes from the string under the interface's annotation, the component's
    docstring, or the signature's docstring.
    """
    doc = _own_doc(component)
    fields = _field_texts(type(component))
    return {
        name: fields.get(name)
        or _mention(doc, name)
        or next(iter(_sentences(_signature_doc(member.signature))), "").rstrip(".")
        for name, member in component.signature.members.items()
        if member.is_signature and not isinstance(member.signature, stream.Signature)
    }


def ports(component: wiring.Component) -> list[dict[str, Any]]:
    """Return a description of each port with bits: a list of dictionaries.

    The keys are ``name`` (in Verilog), ``direction`` ("input" or "output"), ``width`` in bits,
    ``signed`` and ``meaning``. A port with a layout also has ``fields``, a list of its bit fields.
    """
    texts = meanings(component)
    result = []
    for path, member, _ in component.signature.flatten(component):
        name = free_name("__".join(map(str, path)))
        shape = Shape.cast(member.shape)
        entry: dict[str, Any] = {
            "name": name,
            "direction": "input" if member.flow == wiring.In else "output",
            "width": shape.width,
            "signed": shape.signed,
            "meaning": texts.get(re.sub(r"__\d+", "", name), ""),
        }
        fields = list(_fields(member.shape, "", 0))
        if fields:
            entry["fields"] = fields
        if shape.width:
            result.append(entry)
    return result


def _doc(thing: object) -> str:
    """Return an object's docstring, without an inherited one."""
    return inspect.cleandoc(thing.__doc__ or "")


def _own_doc(component: wiring.Component) -> str:
    """Return the docstrings of a component and of its signature's class, if it has one.

    They are followed by those of the accelerator inside, whose ports it may have.
    """
    parts = [_doc(type(component)), _signature_doc(component.signature)]
    inner = getattr(component, "accelerator", None)
    if isinstance(inner, wiring.Component):
        parts.append(_own_doc(inner))
    return "\n\n".join(parts)


def _signature_doc(signature: wiring.Signature) -> str:
    """Return the docstring of a signature's class, flipped or not."""
    if isinstance(signature, wiring.FlippedSignature):
        signature = signature.flip()
    return "" if type(signature) is wiring.Signature else _doc(type(signature))


_FIELD_TEXTS: dict[type, Mapping[str, str]] = {}
"""The strings of the classes that were read before."""


def _field_texts(kind: type) -> Mapping[str, str]:
    """Return the string under each annotated field of a class and its bases, by the field's name.

    The source of a class may be missing, for example of one defined in a notebook.
    """
    if kind in _FIELD_TEXTS:
        return _FIELD_TEXTS[kind]
    texts = _FIELD_TEXTS[kind] = dict[str, str]()
    for base in reversed(kind.__mro__):
        if base.__module__.startswith(("amaranth.", "builtins")):
            continue
        try:
            (node,) = ast.parse(textwrap.dedent(inspect.getsource(base))).body
        except (OSError, TypeError):
            continue
        assert isinstance(node, ast.ClassDef)
        for field, below in pairwise(node.body):
            match field, below:
                case (
                    ast.AnnAssign(target=ast.Name(id=name)),
                    ast.Expr(value=ast.Constant(value=str(text))),
                ):
                    texts[name] = _plain(" ".join(text.split()))
    return texts


def _plain(text: str) -> str:
    """Return a sentence of a docstring without its marks and its full stop."""
    return _ROLE.sub(r"\1", text).replace("``", "").rstrip(".;")


def _sentences(text: str) -> list[str]:
    """Return the sentences of a docstring; each item of a list is at least one of them."""
    return [
        sentence
        for paragraph in re.split(r"\n(?:\s*- +|\n)", f"\n{text}")
        for sentence in re.split(r"(?<=\.)\s+(?=[A-Z`])", " ".join(paragraph.split()))
        if sentence
    ]


def _mention(text: str, name: str) -> str:
    """Return the clause of a docstring that mentions a name, or "".

    ``count_NAME`` in a docstring covers every port whose name begins so. The clause of an input
    ``x_i`` also covers the output ``x_o``.
    """
    clauses = [clause for sentence in _sentences(text) for clause in sentence.split("; ")]
    patterns = [name, re.sub("_o$", "_i", name)]
    for token in re.findall(r"``(\w*NAME\w*)``", text):
        if re.fullmatch(token.replace("NAME", r"\w+"), name):
            patterns.append(token)
    for pattern in (f"``{each}``" for each in patterns):
        # An item of a list begins with the name that it describes.
        for clause in sorted(clauses, key=lambda each: not each.startswith(pattern)):
            if pattern in clause:
                return _plain(clause)
    return ""


def _walk(
    signature: wiring.Signature, doc: str, path: tuple[str, ...], fields: Mapping[str, str]
) -> Iterator[tuple[tuple[str, ...], str]]:
    """Yield path and description of each port; ``fields`` has descriptions of some by name."""
    for name, member in signature.members.items():
        here = (*path, name)
        said = fields.get(name) or _mention(doc, name)
        if member.is_port:
            layout = _bits(member.shape)
            yield here, f"{said}: {layout}".removeprefix(": ") if layout else said
        elif isinstance(member.signature, stream.Signature):
            payload = said or f"what {name} carries"
            layout = _bits(member.signature.members["payload"].shape)
            yield (*here, "payload"), f"{payload}: {layout}" if layout else payload
            yield (*here, "valid"), f"{name} offers a payload"
            yield (*here, "ready"), f"the payload of {name} is taken at the next clock edge"
        else:
            yield from _walk(member.signature, _signature_doc(member.signature), here, {})


def _bits(shape: Any) -> str:
    """Return the positions of the fields of a layout as text."""
    texts = []
    for entry in _fields(shape, "", 0):
        width = entry["width"] * entry.get("count", 1)
        elements = f" ({entry['count']} of {entry['width']} bits)" if "count" in entry else ""
        low = entry["offset"]
        place = f"[{low + width - 1}:{low}]" if width != 1 else f"[{low}]"
        texts.append(f"{entry['name']} {place}{elements}")
    return ", ".join(texts)


def _fields(shape: Any, prefix: str, offset: int) -> Iterator[dict[str, Any]]:
    """Yield the bit fields of a layout; arrays as one field with a count."""
    if isinstance(shape, data.ArrayLayout):
        element = Shape.cast(shape.elem_shape)
        yield {
            "name": prefix or "element",
            "offset": offset,
            "width": element.width,
            "signed": element.signed,
            "count": shape.length,
        }
    elif isinstance(shape, data.StructLayout):
        for name, field in shape:
            inner = f"{prefix}.{name}" if prefix else name
            if isinstance(field.shape, data.Layout):
                yield from _fields(field.shape, inner, offset + field.offset)
            else:
                yield {
                    "name": inner,
                    "offset": offset + field.offset,
                    "width": field.width,
                    "signed": Shape.cast(field.shape).signed,
                }


def _parameter(value: object) -> str | None:
    if isinstance(value, enum.Enum):
        return value.name
    if isinstance(value, bool | int | str | Shape):
        return str(value) if isinstance(value, Shape) else repr(value)
    if isinstance(value, tuple | list) and all(isinstance(item, int) for item in value):
        text = repr(list(value))
        return text if len(text) <= 60 else None
    return None
