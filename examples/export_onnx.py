"""Export three small encoders from PyTorch, as examples of ONNX graphs that the importer reads.

Usage: python examples/export_onnx.py [FOLDER]

Needs the extras ``train`` and ``onnx``, and ``onnxscript`` for PyTorch's newer exporter.
Weights are random. The files are in examples/onnx/, where the tests read them:

- ``patches.onnx``: class token, learned positions, 3 pre-norm blocks with GELU, class pooling and a
  classifier; written out head by head, newer exporter;
- ``rows.onnx``: ``torch.nn.TransformerEncoder``, 2 post-norm blocks with ReLU, older exporter;
- ``text.onnx``: token numbers and a mask of those that are there, a norm of the embedding, 1
  post-norm block with GELU's tanh form; older exporter.
"""

import argparse
from pathlib import Path

import onnx
import torch
from torch import Tensor, nn
from torch.nn import functional

FOLDER = Path(__file__).parent / "onnx"


class Block(nn.Module):
    """A block with its projections written out."""

    def __init__(self, dim: int, heads: int, ffn: int, *, pre: bool, approximate: str):
        super().__init__()
        self.heads, self.pre, self.approximate = heads, pre, approximate
        self.query, self.key, self.value = (nn.Linear(dim, dim) for _ in range(3))
        self.output = nn.Linear(dim, dim)
        self.up, self.down = nn.Linear(dim, ffn), nn.Linear(ffn, dim)
        self.attention_norm, self.mlp_norm = nn.LayerNorm(dim), nn.LayerNorm(dim)

    def attend(self, x: Tensor, added: Tensor | None) -> Tensor:
        """Return attention with ``added`` to the scores."""
        split = (x.shape[0], x.shape[1], self.heads, -1)
        q, k, v = (
            layer(x).reshape(split).transpose(1, 2) for layer in (self.query, self.key, self.value)
        )
        scores = q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5
        if added is not None:
            scores = scores + added
        return self.output((scores.softmax(-1) @ v).transpose(1, 2).reshape(x.shape))

    def mlp(self, x: Tensor) -> Tensor:
        """Return the MLP."""
        return self.down(functional.gelu(self.up(x), approximate=self.approximate))

    def forward(self, x: Tensor, added: Tensor | None = None) -> Tensor:
        """Return the block's output."""
        if self.pre:
            x = x + self.attend(self.attention_norm(x), added)
            return x + self.mlp(self.mlp_norm(x))
        x = self.attention_norm(x + self.attend(x, added))
        return self.mlp_norm(x + self.mlp(x))


class Patches(nn.Module):
    """A vision Transformer over patches that are vectors already."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Linear(5, 16)
        self.token = nn.Parameter(torch.randn(1, 1, 16))
        self.positions = nn.Parameter(torch.randn(1, 8, 16))
        self.blocks = nn.ModuleList(
            Block(16, 4, 28, pre=True, approximate="none") for _ in range(3)
        )
        self.norm = nn.LayerNorm(16)
        self.head = nn.Linear(16, 3)

    def forward(self, x: Tensor) -> Tensor:
        """Return logits [batch, 3] of patches [batch, 7, 5]."""
        x = torch.cat([self.token.expand(x.shape[0], -1, -1), self.embed(x)], dim=1)
        x = x + self.positions
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x)[:, 0])


class Text(nn.Module):
    """An encoder like BERT."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(20, 12), nn.Embedding(9, 12)
        self.types = nn.Embedding(2, 12)
        self.norm = nn.LayerNorm(12)
        self.block = Block(12, 3, 18, pre=False, approximate="tanh")

    def forward(self, tokens: Tensor, mask: Tensor) -> Tensor:
        """Return rows [batch, 9, 12] of tokens and their mask [batch, 9]."""
        places = torch.arange(tokens.shape[1])[None]
        x = self.words(tokens) + self.places(places) + self.types(torch.zeros_like(places))
        added = (1.0 - mask[:, None, None, :].float()) * torch.finfo(torch.float32).min
        return self.block(self.norm(x), added)


def rows() -> nn.Module:
    """Return PyTorch's encoder."""
    layer = nn.TransformerEncoderLayer(
        12, 2, 20, dropout=0.0, activation="relu", batch_first=True, norm_first=False
    )
    return nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)


def randomize(model: nn.Module) -> nn.Module:
    """Return a model whose every parameter is random, so that no two are alike."""
    with torch.no_grad():
        for name, value in model.named_parameters():
            spread = 0.3 if value.ndim > 1 else 0.1
            nn.init.normal_(value, 1.0 if "norm" in name and "weight" in name else 0.0, spread)
    return model.eval()


def export(model: nn.Module, inputs: tuple[Tensor, ...], path: Path, *, newer: bool) -> None:
    """Write a model with PyTorch's newer or older exporter."""
    options = {"external_data": False, "verbose": False} if newer else {"opset_version": 17}
    torch.onnx.export(model, inputs, str(path), dynamo=newer, **options)
    written = onnx.load(str(path))
    # Where the exporter stood in which source is most of the file, and changes with the place.
    del written.metadata_props[:]
    for part in (*written.graph.node, *written.graph.value_info, *written.graph.input):
        part.doc_string = ""
        del part.metadata_props[:]
    del written.graph.value_info[:]
    onnx.save(written, str(path))


def main() -> None:
    """Write the three files."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path, nargs="?", default=FOLDER)
    folder = parser.parse_args().folder
    folder.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(1)
    export(randomize(Patches()), (torch.randn(1, 7, 5),), folder / "patches.onnx", newer=True)
    export(randomize(rows()), (torch.randn(1, 6, 12),), folder / "rows.onnx", newer=False)
    tokens = torch.arange(9)[None]
    text = (tokens, torch.ones_like(tokens))
    export(randomize(Text()), text, folder / "text.onnx", newer=False)


if __name__ == "__main__":
    main()
