"""Error messages for graphs that cannot be imported: the unsupported parts, and remedies."""

import re
from collections.abc import Iterable, Iterator
from typing import Any

from celosia.arch.tables import read_table
from celosia.generators.frontend.hugging_face_folder import TABLES
from celosia.generators.frontend.onnx.values import UnsupportedError

_THINGS = read_table(TABLES / "refused_onnx.toml")
_KINDS = {
    kind: f"it holds {thing['thing']}; {thing['remedy']}"
    for thing in _THINGS.values()
    for kind in thing.get("kinds", ())
}
"""Name and remedy for nodes of each kind."""
_REASONS = {
    thing["sign"]: f"it holds {thing['thing']}; {thing['remedy']}"
    for thing in _THINGS.values()
    if "sign" in thing
}
"""Name and remedy by a part of the reason why a node is not understood."""
_DOMAINS = {
    thing["domain"]: f"it holds {thing['thing']}; {thing['remedy']}"
    for thing in _THINGS.values()
    if "domain" in thing
}
"""Name and remedy for unknown nodes of each domain other than ONNX's own."""
_UNKNOWN = "this kind of node is not known"
_END = _REASONS[_THINGS["end_reason"]["sign"]]
"""The least specific explanation."""


def explain(
    graph: Any,
    reasons: list[str],
    error: UnsupportedError | None,
    others: Iterable[UnsupportedError] = (),
) -> str:
    """Return an error text that says why an ONNX graph cannot be imported, with a remedy.

    - ``reasons``: a line for each unsupported node.
    - ``error``: the reason why the graph's output is not the output of an encoder.
    - ``others``: such reasons for inner values of the graph. They are used only if no remedy is
      known for the other reasons.
    """
    kinds = {node.op_type for node in graph.model.graph.node}
    text = [*reasons, *([str(error)] if error is not None else [])]
    things = unsupported_parts(graph.model) or _of_domains(graph.model, reasons)
    if not things and "Softmax" not in kinds and _known(text) != [_END]:
        things.append("it holds no attention; give a Transformer encoder")
    if not things:
        if _known(text) in ([], [_END]):
            text += [str(cause) for cause in others if _known([str(cause)]) not in ([], [_END])][:1]
        things += _known(text)[:1]
    if not things:
        things.append("it holds parts that are not those of an encoder; see the nodes")
    nodes = "; ".join(_grouped(re.sub(r"\s+", " ", line) for line in text))
    return "; and ".join(things) + (f" ({nodes})" if nodes else "")


def _of_domains(model: Any, reasons: list[str]) -> list[str]:
    """Return the explanations of nodes of other domains that are not known."""
    unknown = [line for line in reasons if line.endswith(_UNKNOWN)]
    domains = {
        node.domain
        for node in model.graph.node
        if any(f" ({node.op_type}): " in line for line in unknown)
    }
    return [thing for domain, thing in _DOMAINS.items() if domain in domains]


def _known(text: list[str]) -> list[str]:
    """Return the explanations of some reasons, with a remedy each."""
    return [thing for sign, thing in _REASONS.items() if any(sign in line for line in text)]


def _grouped(reasons: Iterable[str]) -> Iterator[str]:
    """Yield each reason once, with the number of other nodes that have it."""
    nodes_by_reason: dict[str, list[str]] = {}
    for reason in reasons:
        node, _, why = reason.partition(": ")
        kind = node.rpartition(" (")[2]
        nodes_by_reason.setdefault(f"{kind}: {why}", []).append(reason)
    for alike in nodes_by_reason.values():
        more = len(alike) - 1
        yield alike[0] + (f" (and {more} like it)" if more else "")


def unsupported_parts(model: Any) -> list[str]:
    """Return a list of texts that name the unsupported parts of a graph, each with a remedy."""
    kinds = {node.op_type for node in model.graph.node}
    things = list(dict.fromkeys(thing for kind, thing in _KINDS.items() if kind in kinds))
    if _turns_halves(model) and _KINDS["RotaryEmbedding"] not in things:
        things.append(_KINDS["RotaryEmbedding"])
    return things


def _turns_halves(model: Any) -> bool:
    """Return whether a negated half is joined with another, as the columns of a rotation are."""
    nodes = model.graph.node
    negated = {name for node in nodes if node.op_type == "Neg" for name in node.output}
    return any(node.op_type == "Concat" and negated & set(node.input) for node in nodes)
