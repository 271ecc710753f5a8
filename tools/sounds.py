"""Twelve sounds of every form, which `tools.reference_sounds` and tests write."""

from pathlib import Path
from typing import Any

import numpy as np
import soundfile

RATE = 8000
SETTINGS: dict[str, Any] = {
    "feature_extractor_type": "ASTFeatureExtractor",
    "sampling_rate": RATE,
    "max_length": 30,
    "num_mel_bins": 16,
}
_KINDS = [
    ("wav", "PCM_U8"), ("wav", "PCM_16"), ("wav", "PCM_24"), ("wav", "PCM_32"), ("wav", "FLOAT"),
    ("wav", "DOUBLE"), ("flac", "PCM_16"), ("flac", "PCM_24"), ("flac", "PCM_S8"),
    ("wav", "PCM_16"), ("wav", "PCM_16"), ("wav", "FLOAT"),
]  # fmt: skip
_LOUD, _SILENT = 9, 10


def write_sounds(folder: Path) -> None:
    """Write twelve sounds: of every form, mono and stereo, short and long, one loud, one silent."""
    folder.mkdir()
    rng = np.random.default_rng(2)
    for number, (ending, kind) in enumerate(_KINDS):
        count = (2000, 4000, 4001, 7000)[number % 4]
        samples = np.cumsum(rng.uniform(-0.1, 0.1, (count, 1 + number % 2)), axis=0)
        samples = 0.9 * samples / np.abs(samples).max()
        if number == _LOUD:
            samples = np.sign(samples)
        if number == _SILENT:
            samples = 0 * samples
        soundfile.write(folder / f"{number:02}.{ending}", samples, RATE, subtype=kind)
