"""Names of settings and tensors in Hugging Face folders of decoders, for each model type."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from celosia.arch.tables import read_table
from celosia.generators.frontend.hugging_face_folder import TABLES


@dataclass(frozen=True)
class TextFamily:
    """Names of settings in config.json, and names of tensors, for one family of decoders."""

    fields: Mapping[str, str]
    """A description's field by the configuration's name of it."""
    activation: str
    """The configuration's name of the activation function."""
    epsilon: str
    """The configuration's name of the epsilon that norms add to the variance."""
    constants: Mapping[str, Any]
    """Fields of a description that all models of the kind share."""
    prefix: str
    """Prefix of the decoder's tensors."""
    layer: str
    """Prefix of layer 0, without its number."""
    tensors: Mapping[str, str]
    """Our name of each tensor outside of the layers, and of each part of a layer."""
    activations: Mapping[str, str] = field(default_factory=dict)
    """Another function than the one that a configuration names, by its name."""
    only: Mapping[str, Any] = field(default_factory=dict)
    """Settings with only one supported value, and this value."""
    unset: Sequence[str] = ()
    """Settings that are not supported if they have a value."""
    ignored: str = r"layers\.\d+\.self_attn\.rotary_emb\.inv_freq"
    """Regular expression of the tensors that hold no weights."""
    partial: bool = False
    """True if only a share of a head's columns may be rotated."""
    window: str = ""
    """The configuration's name of the number of tokens that a layer attends to."""
    window_layers: str = ""
    """The configuration's name of the layers that do so; empty if all do."""
    inputs_first: bool = False
    """True if matrices are [inputs, outputs]."""
    first_position: int = 0
    """The row of the table of positions for the first token."""
    gain_above: float = 0.0
    """Offset that is added to the weights of norms."""
    plain_norms: bool = False
    """True if norms have no weights."""
    biased: Mapping[str, str] = field(default_factory=dict)
    """Parts of a layer that have biases, by the setting that switches them on; empty if none
    does."""
    unscaled: bool = False
    """True if scores are not divided by the root of a head's width."""


TEXT_FAMILIES = {
    name: TextFamily(**values) for name, values in read_table(TABLES / "text.toml").items()
}
"""The kinds of decoders that are read, by the configuration's ``model_type``."""
_REFUSED = read_table(TABLES / "refused.toml").values()
REFUSED: dict[str, str] = {name: family["why"] for family in _REFUSED for name in family["names"]}
"""Kinds that are known and not read, with the reason."""
WHY = {name: f": {family['why']}" for family in _REFUSED for name in family.get("settings", ())}
"""Meaning of the unsupported values of settings that have one supported value."""
