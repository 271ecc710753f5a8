"""Record the spectrograms and logits of transformers for twelve sounds: tests/data/sounds.

Usage: python -m tools.reference_sounds

Needs the extra ``zoo``. ``model`` is a small Audio Spectrogram Transformer, ``features.npz`` has
the spectrogram of each sound by the name of its file, ``logits.npy`` the model's logits of each.
"""

import tempfile
from pathlib import Path

import numpy as np
import soundfile
import torch
import transformers

from tools.sounds import RATE, SETTINGS, write_sounds

DATA = Path(__file__).parents[1] / "tests" / "data" / "sounds"


def main() -> None:
    """Record the data."""
    torch.manual_seed(1)
    config = transformers.ASTConfig(
        hidden_size=24,
        intermediate_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        patch_size=8,
        frequency_stride=4,
        time_stride=6,
        max_length=SETTINGS["max_length"],
        num_mel_bins=SETTINGS["num_mel_bins"],
        num_labels=3,
        initializer_range=0.2,
    )
    model = transformers.ASTForAudioClassification(config).eval()
    own = {name: value for name, value in SETTINGS.items() if name != "feature_extractor_type"}
    extractor = transformers.ASTFeatureExtractor(**own)
    model.save_pretrained(DATA / "model")
    extractor.save_pretrained(DATA / "model")
    features, logits = {}, []
    with tempfile.TemporaryDirectory() as temporary:
        write_sounds(Path(temporary) / "sounds")
        for path in sorted((Path(temporary) / "sounds").iterdir()):
            samples = soundfile.read(path, always_2d=True)[0].mean(axis=1)
            made = extractor(samples, sampling_rate=RATE, return_tensors="pt")
            features[path.name] = made["input_values"][0].numpy()
            with torch.no_grad():
                logits.append(model(**made).logits[0].numpy())
    np.savez_compressed(DATA / "features.npz", **features)
    np.save(DATA / "logits.npy", logits)


if __name__ == "__main__":
    main()
