"""Train a Transformer that recognizes a machine's faults by its vibration, for the tutorial.

Usage: python examples/tutorial.py [FOLDER]

Needs the extras ``train`` and ``onnx``. An accelerometer gives 256 samples; the model recognizes
the machine's state, one of five. The signals are synthetic: shafts out of balance and out of line,
a bearing whose outer race is broken, a gear with a broken tooth, each under noise. The folder gets
the model, ``vibration.onnx``, inputs to calibrate with, and inputs, labels and the classes' names
to test with. It takes about a minute on two cores.
"""

import argparse
from pathlib import Path

import numpy as np
import onnx
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

FOLDER = Path(__file__).parent / "vibration"
NAMES = ("healthy", "imbalance", "misalignment", "bearing", "gear")
TOKENS, SAMPLES = 16, 16
DIM, HEADS, FFN, LAYERS = 24, 4, 48, 2
EPOCHS, BATCH = 8, 128


def signals(rng: np.random.Generator, count: int) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """Return windows [count, tokens, samples] in units of the noise, and their classes [count]."""
    labels = rng.integers(len(NAMES), size=count)
    time = np.arange(TOKENS * SAMPLES) / 256
    turns = rng.uniform(7, 9, (count, 1)) * time + rng.random((count, 1))
    strength = rng.uniform(1, 2.5, (count, 1))
    shapes = np.stack(
        [
            np.zeros_like(turns),
            np.sin(2 * np.pi * turns),
            np.sin(4 * np.pi * turns) + 0.5 * np.sin(2 * np.pi * turns),
            _knocks(3.6 * turns, 70),
            _knocks(turns, 40),
        ]
    )
    clean = shapes[labels, np.arange(count)] * strength
    noisy = clean + rng.normal(size=clean.shape) + 0.4 * np.sin(2 * np.pi * turns)
    return noisy.reshape(count, TOKENS, SAMPLES).astype(np.float32), labels


def _knocks(turns: NDArray[np.float64], pitch: float) -> NDArray[np.float64]:
    """Return a ringing that begins anew with each turn and dies away."""
    since = turns % 1
    return 2.5 * np.exp(-6 * since) * np.sin(pitch * since)


class Listener(nn.Module):
    """A Transformer encoder over windows of samples, its mean classified."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Linear(SAMPLES, DIM)
        self.position = nn.Parameter(0.02 * torch.randn(1, TOKENS, DIM))
        layer = nn.TransformerEncoderLayer(
            DIM, HEADS, FFN, dropout=0.0, activation="gelu", batch_first=True, norm_first=True
        )
        self.encoder = nn.TransformerEncoder(layer, LAYERS, nn.LayerNorm(DIM), False)
        self.head = nn.Linear(DIM, len(NAMES))

    def forward(self, x: Tensor) -> Tensor:
        """Return scores [batch, classes] of windows [batch, tokens, samples]."""
        return self.head(self.encoder(self.embed(x) + self.position).mean(dim=1))


def train(rng: np.random.Generator) -> Listener:
    """Return a trained model."""
    model = Listener()
    optimizer = torch.optim.AdamW(model.parameters(), 3e-3, weight_decay=0.01)
    x, y = (torch.from_numpy(array) for array in signals(rng, 8000))
    steps = EPOCHS * (len(x) // BATCH)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 6e-3, steps)
    for epoch in range(EPOCHS):
        order = torch.randperm(len(x))
        for batch in order[: len(x) // BATCH * BATCH].reshape(-1, BATCH):
            loss = nn.functional.cross_entropy(model(x[batch]), y[batch])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
        print(f"epoch {epoch + 1} of {EPOCHS}: loss {loss.item():.3f}", flush=True)
    return model.eval()


def _without_notes(model: onnx.ModelProto) -> onnx.ModelProto:
    """Return a graph without the exporter's notes, which take more room than the weights."""
    for part in (
        *model.graph.node,
        *model.graph.value_info,
        *model.graph.input,
        *model.graph.output,
    ):
        part.ClearField("metadata_props")
        part.ClearField("doc_string")
    return model


def main(folder: Path) -> None:
    """Train, and write the model and its data."""
    torch.manual_seed(1)
    rng = np.random.default_rng(1)
    model = train(rng)
    folder.mkdir(parents=True, exist_ok=True)
    calibration, _ = signals(rng, 64)
    inputs, labels = signals(rng, 100)
    with torch.no_grad():
        predicted = model(torch.from_numpy(inputs)).argmax(dim=1).numpy()
    program = torch.onnx.export(
        model,
        (torch.from_numpy(inputs[:1]),),
        input_names=["vibration"],
        output_names=["scores"],
        dynamo=True,
    )
    onnx.save(_without_notes(program.model_proto), folder / "vibration.onnx")
    np.save(folder / "calibration.npy", calibration.astype(np.float16))
    np.save(folder / "inputs.npy", inputs.astype(np.float16))
    np.save(folder / "labels.npy", labels)
    (folder / "names.txt").write_text("".join(f"{name}\n" for name in NAMES), encoding="utf-8")
    print(f"{np.mean(predicted == labels):.0%} of {len(labels)} test inputs right, in {folder}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path, nargs="?", default=FOLDER)
    main(parser.parse_args().folder)
