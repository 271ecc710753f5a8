"""A folder with an encoder that takes few cycles."""

from pathlib import Path

import numpy as np
from safetensors.numpy import save_file

from celosia.generators.frontend.description import ModelDescription
from celosia.tb.verify.random_models import random_weights

MODEL = ModelDescription(
    name="mine", tokens=5, features=3, dim=4, layers=1, heads=1, ffn=4, classes=3, variable=True
)


def model_folder(parent: Path) -> Path:
    """Return a new folder in ``parent`` with a small model, its inputs and its labels."""
    rng = np.random.default_rng(6)
    folder = parent / "mine"
    folder.mkdir()
    (folder / "model.toml").write_text(MODEL.to_toml())
    weights = {name: w.astype(np.float32) for name, w in random_weights(rng, MODEL).items()}
    save_file(weights, folder / "weights.safetensors")
    np.save(folder / "inputs.npy", rng.normal(0, 1, (8, 5, 3)))
    (folder / "names.txt").write_text("one\ntwo\nthree\n")
    return folder
