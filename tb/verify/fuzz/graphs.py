"""Fuzzing with random ONNX graphs: they are imported, checked against ONNX, compiled and run."""

import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from celosia.arch.errors import InputError
from celosia.arch.packages import Deferred
from celosia.generators.campaign.case import Case
from celosia.generators.frontend.onnx.importer import load_onnx
from celosia.generators.lower.encoder_compiler import compile_model
from celosia.generators.lower.options import Options
from celosia.tb.verify.fuzz.machines import random_machine
from celosia.tb.verify.fuzz.models import differs

onnx: Any = Deferred("onnx", "ONNX files need")
helper: Any = Deferred("onnx.helper", "ONNX files need")

_OPSET = 17
_TRIES = 200  # of machines for a graph that is understood
_STRANGE = 0.2  # part of the graphs that have a node at a place where no encoder has one


class RandomGraph:
    """A random encoder as an ONNX graph, with the node patterns that exporters of models write.

    If ``plain`` is true, the graph begins with a linear layer and has no node that the importer
    refuses.
    """

    def __init__(self, rng: np.random.Generator, *, plain: bool = False):
        self._rng = rng
        self._nodes: list[Any] = []
        self._known: dict[str, Any] = {}
        self.tokens = int(rng.integers(2, 9))
        self.features = int(rng.integers(1, 9))
        self._heads = int(rng.integers(1, 4))
        self._head_dim = int(rng.integers(1, 6))
        self._kv_heads = self._heads if rng.random() < 0.7 else 1
        embedded = rng.random() < 0.7 or plain
        self._dim = int(rng.integers(2, 14)) if embedded else self.features
        self._hidden = int(rng.integers(1, 20))
        self._activation = str(rng.choice(["Relu", "Tanh", "SiLU", "Erf"]))
        self._norm = str(rng.choice(["none", "pre", "post"]))
        self._strange = rng.random() < _STRANGE and not plain
        x = self._linear("x", self.features, self._dim) if embedded else "x"
        if rng.random() < 0.3:
            x = self._add("Add", x, self._weight(1, self.tokens, self._dim))
        for _ in range(int(rng.integers(1, 3))):
            x = self._block(x)
        if self._norm == "pre" and rng.random() < 0.7:
            x = self._normed(x)
        end = rng.integers(3)
        self._axes = 2 if end else 3
        if end:
            x = self._add("ReduceMean", x, axes=[1], keepdims=0)
        if end == 2:
            x = self._linear(x, self._dim, int(rng.integers(1, 6)))
        self._output = x

    def _add(self, kind: str, *inputs: Any, **attributes: Any) -> str:
        names = []
        for value in inputs:
            name = value if isinstance(value, str) else f"c{len(self._known)}"
            if name is not value:
                self._known[name] = np.asarray(value)
            names.append(name)
        output = f"n{len(self._nodes)}"
        self._nodes.append(helper.make_node(kind, names, [output], name=output, **attributes))
        return output

    def _weight(self, *shape: int) -> Any:
        return self._rng.normal(0, 0.5, shape).astype(np.float32)

    def _linear(self, x: str, inputs: int, outputs: int) -> str:
        x = self._add("MatMul", x, self._weight(inputs, outputs))
        return self._add("Add", self._weight(outputs), x) if self._rng.random() < 0.8 else x

    def _normed(self, x: str) -> str:
        parts = [self._weight(self._dim) + 1]
        parts += [self._weight(self._dim)] * (self._rng.random() < 0.5)
        return self._add("LayerNormalization", x, *parts, axis=-1, epsilon=1e-5)

    def _block(self, x: str) -> str:
        for part in (self._attention, self._mlp):
            y = self._add("Add", x, part(self._normed(x) if self._norm == "pre" else x))
            x = self._normed(y) if self._norm == "post" else y
            if self._strange and self._rng.random() < 0.5:
                x = self._add(str(self._rng.choice(["Exp", "Softmax", "Neg", "Relu"])), x)
        return x

    def _attention(self, x: str) -> str:
        heads, size, n = self._heads, self._head_dim, self.tokens
        parts = []
        for name, count in (("q", heads), ("k", self._kv_heads), ("v", self._kv_heads)):
            part = self._linear(x, self._dim, size * count)
            part = self._add("Reshape", part, np.array([1, n, -1, size]))
            order = [0, 2, 3, 1] if name == "k" else [0, 2, 1, 3]
            part = self._add("Transpose", part, perm=order)
            if count != heads:
                shape = [1, heads, size, n] if name == "k" else [1, heads, n, size]
                part = self._add("Expand", part, np.array(shape))
            parts.append(part)
        scale = np.float32(self._rng.choice([1.0, 0.5, size**-0.5]))
        scores = self._add("Mul", self._add("MatMul", *parts[:2]), scale)
        context = self._add("MatMul", self._add("Softmax", scores, axis=-1), parts[2])
        context = self._add("Transpose", context, perm=[0, 2, 1, 3])
        context = self._add("Reshape", context, np.array([1, n, heads * size]))
        return self._linear(context, heads * size, self._dim)

    def _mlp(self, x: str) -> str:
        size = self._hidden
        up = self._linear(x, self._dim, size)
        if self._activation == "SiLU":
            hidden = self._add("Mul", up, self._add("Sigmoid", up))
        elif self._activation == "Erf":
            part = self._add("Erf", self._add("Div", up, np.float32(np.sqrt(2))))
            hidden = self._add("Mul", up, self._add("Add", part, np.float32(1)))
            hidden = self._add("Mul", hidden, np.float32(0.5))
        else:
            hidden = self._add(self._activation, up)
        return self._linear(hidden, size, self._dim)

    def save(self, path: Path) -> None:
        """Write the graph to an ONNX file; its input has the shape [1, tokens, features]."""
        kind = onnx.TensorProto.FLOAT
        graph = helper.make_graph(
            self._nodes,
            "graph",
            [helper.make_tensor_value_info("x", kind, [1, self.tokens, self.features])],
            [helper.make_tensor_value_info(self._output, kind, [None] * self._axes)],
            [onnx.numpy_helper.from_array(value, name) for name, value in self._known.items()],
        )
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", _OPSET)])
        onnx.save(model, str(path))


def run(case: Case) -> dict[str, Any]:
    """Import a random ONNX graph, and compile it for a random machine; return a dictionary.

    - ``refusal``: the sentence with which the importer refuses the graph, or empty.
    - ``mismatch``: the first error, or empty. All tensors on the golden machine must equal the
      integer reference's.
    """
    rng = case.rng()
    graph = RandomGraph(rng)
    with tempfile.TemporaryDirectory(prefix="celosia.") as folder:
        path = Path(folder) / "model.onnx"
        graph.save(path)
        try:
            # The import compares its results with ONNX's.
            source = load_onnx(path)
        except InputError as error:
            return {"mismatch": "", "refusal": str(error).partition("model.onnx")[2]}
    samples = [source.random(rng) for _ in range(4)]
    inputs = [source.prepare(values) for values in samples]
    for _ in range(_TRIES):
        config = random_machine(rng)
        try:
            compiled = compile_model(
                source.description, source.weights, inputs, config, Options(search=False)
            )
        except InputError:
            continue
        return {"mismatch": differs(compiled, source.weights, inputs[:1]), "refusal": ""}
    return {"mismatch": f"{_TRIES} machines were refused for {source.description}", "refusal": ""}
