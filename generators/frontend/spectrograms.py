"""Mel spectrograms like those of transformers' ASTFeatureExtractor, without PyTorch."""

import importlib
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from celosia.arch.errors import InputError

EXTRACTOR = "ASTFeatureExtractor"
_WITHOUT_EFFECT = {
    *("feature_extractor_type", "processor_class", "feature_size", "padding_value"),
    *("padding_side", "return_attention_mask"),
}
_FRAME, _HOP, _FOURIER, _LOWEST = 400, 160, 512, 20
"""Samples of a frame and from one to the next, points of its transform, and the least hertz."""


@dataclass(frozen=True, kw_only=True)
class SpectrogramExtractor:
    """Converts a sound to a mel spectrogram, like ``ASTFeatureExtractor`` of ``transformers``.

    The fields are settings of that class, with the same names and the same defaults.
    """

    sampling_rate: int = 16000
    """Samples a second."""
    num_mel_bins: int = 128
    """Columns of the spectrogram."""
    max_length: int = 1024
    """Number of frames: longer sounds are cut, shorter ones extended with zeros."""
    do_normalize: bool = True
    mean: float = -4.2677393
    std: float = 4.5689974

    model_input_names = ("input_values",)

    def __call__(
        self, samples: NDArray[np.floating[Any]], **_: object
    ) -> dict[str, NDArray[np.float32]]:
        """Return ``input_values``, [1, max_length, num_mel_bins], of samples from -1 to 1."""
        audio = importlib.import_module("transformers.audio_utils")
        filters = audio.mel_filter_bank(
            num_frequency_bins=_FOURIER // 2 + 1,
            num_mel_filters=self.num_mel_bins,
            min_frequency=_LOWEST,
            max_frequency=self.sampling_rate // 2,
            sampling_rate=self.sampling_rate,
            mel_scale="kaldi",
            triangularize_in_mel_space=True,
        )
        frames = audio.spectrogram(
            samples.astype(np.float32),
            audio.window_function(_FRAME, "hann", periodic=False),
            frame_length=_FRAME,
            hop_length=_HOP,
            fft_length=_FOURIER,
            power=2.0,
            center=False,
            preemphasis=0.97,
            mel_filters=filters,
            log_mel="log",
            mel_floor=float(np.finfo(np.float32).eps),
            remove_dc_offset=True,
        ).T[: self.max_length]
        values = np.zeros((1, self.max_length, self.num_mel_bins), np.float32)
        values[0, : len(frames)] = frames
        return {
            "input_values": (values - self.mean) / (2 * self.std) if self.do_normalize else values
        }


def spectrogram_extractor(settings: Mapping[str, Any], path: object) -> SpectrogramExtractor:
    """Return the :class:`SpectrogramExtractor` that a dictionary of settings describes.

    Known settings that do not affect a spectrogram are ignored. ``path`` is the settings' file, for
    error messages. Raises :class:`InputError` if a setting is unknown, or if a used setting has an
    invalid value.
    """
    kinds = {field.name: type(field.default) for field in fields(SpectrogramExtractor)}
    own = {name: value for name, value in settings.items() if name not in _WITHOUT_EFFECT}
    for name, value in own.items():
        if name not in kinds:
            raise InputError(f"Setting {name!r} in {path} is none of {', '.join(kinds)}; remove it")
        kind = kinds[name]
        numbers = isinstance(value, int | float) and not isinstance(value, bool)
        fits = numbers and np.isfinite(value) if kind is float else type(value) is kind
        if not fits or not (kind is bool or name == "mean" or value > 0):
            wanted = {bool: "true or false", int: "a positive integer", float: "a number"}[kind]
            wanted = "a positive number" if name == "std" else wanted
            raise InputError(f"Setting {name!r} in {path} must be {wanted}, not {value!r}")
    return SpectrogramExtractor(**own)
