"""Catalog of the cocotb benches: which bench tests each unit, and with which parameters."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from amaranth.lib.wiring import Component

from celosia.arch.config import Config
from celosia.arch.tables import read_table
from celosia.generators.verilog.units import make_unit, with_formats


@dataclass(frozen=True, kw_only=True)
class Bench:
    """A cocotb bench of a unit or of another circuit, with the bench's parameters."""

    module: str
    """Name of the Python module that has the bench."""
    name: str = ""
    """Name of the unit in ``celosia.generators.verilog.units``; empty for any other circuit."""
    component: Callable[[Config], Component] | None = None
    """Function from a configuration to the circuit, if the circuit has no name."""
    changes: Mapping[str, Any] = field(default_factory=dict)
    """Values of fields of the configuration that the circuit needs."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    """Parameters with fixed values."""
    tests: Sequence[str] | None = None
    """Names of the module's tests that apply to the unit; all of them if None."""
    mutants: Mapping[str, Any] = field(default_factory=dict)
    """Parameters with other values when the bench searches for mutants."""
    config: Mapping[str, str] = field(default_factory=dict)
    """For each parameter with the value of a field of the configuration, the field's name."""
    unit: Mapping[str, str] = field(default_factory=dict)
    """For each parameter with the value of a component's attribute, the attribute's name."""
    inner: Sequence[str] = ()
    """Paths of submodules that are not mutated here, because they have separate benches."""
    fields: str = ""
    """If not empty, the parameter ``config`` has all fields of the configuration. ``tree`` changes
    the configuration's array to a tree, ``formats`` adds weight formats, and ``config`` changes
    nothing."""

    def make(self, config: Config) -> tuple[Component, dict[str, Any]]:
        """Return the unit's component for a configuration, and the parameters of its bench.

        The parameters are a dictionary from name to value.
        """
        config = config.replace(**self.changes)
        make = self.component
        component = make(config) if make is not None else make_unit(self.name, config)
        values = {name: config.read(of) for name, of in self.config.items()}
        values |= {name: getattr(component, of) for name, of in self.unit.items()}
        if self.fields:
            chosen = with_formats(config) if self.fields == "formats" else config
            if self.fields == "tree":
                chosen = chosen.replace(array="tree")
            values["config"] = chosen.fields()
        return component, {**self.settings, **values}


def circuit_bench(module: str, component: Callable[[Config], Component], **values: Any) -> Bench:
    """Return a :class:`Bench` for a circuit that is not in ``UNITS``, the table of units.

    ``module`` is a name in ``celosia.tb.benches``. ``component`` returns the circuit for a
    configuration. The parameter ``config`` has all fields of the configuration. ``values`` are
    other fields of :class:`Bench`.
    """
    path = f"celosia.tb.benches.{module}"
    return Bench(module=path, component=component, fields="config", **values)


BENCHES = {
    name: Bench(name=name, **values)
    for name, values in read_table(Path(__file__).with_suffix(".toml")).items()
}
"""Every bench that ``celosia test`` can run."""
