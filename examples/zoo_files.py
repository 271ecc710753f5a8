"""Files of the models of examples/zoo.py: folders, and ONNX by both exporters."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn
from zoo_modules import Named


@dataclass(frozen=True)
class Made:
    """A model to export: the exporter, and the inputs."""

    name: str
    road: str
    """``folder``, or ``older`` or ``newer`` of PyTorch's exporters of ONNX."""
    make: Callable[[], nn.Module]
    inputs: tuple[Tensor, ...] = ()
    names: tuple[str, ...] = ("x",)
    opset: int = 17


def write(made: Made, folder: Path) -> Path:
    """Write a model with random weights, and return its file or folder."""
    return export(made, weighted(made), folder)


def weighted(made: Made) -> nn.Module:
    """Return a model with random weights."""
    torch.manual_seed(len(made.name))
    model = made.make()
    with torch.no_grad():
        for name, value in model.named_parameters():
            gain = "norm" in name.lower() or ".ln_" in name
            middle = 1.0 if gain and name.endswith("weight") else 0.0
            nn.init.normal_(value, middle, 0.2 if value.ndim > 1 else 0.1)
    return model.eval()


def export(made: Made, model: nn.Module, folder: Path) -> Path:
    """Write a model by its road, and return its file or folder."""
    if made.road == "folder":
        path = folder / made.name.replace(" ", "_")
        model.save_pretrained(path)
        return path
    path = folder / f"{made.name.replace(' ', '_').replace(',', '')}_{made.road}.onnx"
    newer = made.road == "newer"
    if made.names != ("x",):
        model = Named(model, made.names).eval()
    options = {"external_data": False, "verbose": False} if newer else {"opset_version": made.opset}
    torch.onnx.export(
        model, made.inputs, str(path), dynamo=newer, input_names=list(made.names), **options
    )
    return path
