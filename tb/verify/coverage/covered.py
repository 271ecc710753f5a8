"""Configurations for which coverage is measured."""

from celosia.arch.config import Config
from celosia.arch.errors import check_known
from celosia.arch.presets import load

CONFIGURATIONS = {
    "tiny": ("tiny", ()),
    "full": (
        "tiny",
        (
            *("lanes=2", "rotary=true", "argmax=true", "wide_functions=true", "weight_depth=7"),
            "wide_operands=true",
            *("weight_formats=int4,ternary,int2,nf4", "weight_group=8", "sparse_lanes=2"),
        ),
    ),
    "odd": ("odd", ()),
    "deferred": (
        "tiny",
        (
            *("lanes=2", "softmax_lanes=4", "row_factors=18", "multiplier_width=16"),
            *("registered=true", "queue_depth=3"),
        ),
    ),
}
"""Four machines: the smallest, one with every unit and several lanes, one with odd sizes, and a
registered one whose norms and softmaxes store their factors."""


def covered_config(name: str) -> Config:
    """Return a configuration for which coverage is measured, by its name in ``CONFIGURATIONS``.

    The returned configuration also has trace ports, 512 KB of external memory, and a watchdog.
    Raises :class:`InputError` if the name is unknown.
    """
    check_known("configuration", name, CONFIGURATIONS)
    source, changes = CONFIGURATIONS[name]
    return load(source, list(changes)).replace(trace=True, mem_addr_width=19, watchdog=4000)
