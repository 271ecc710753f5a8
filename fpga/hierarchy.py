"""Counts the module instances of a Verilog design, and replaces the modules of some instances.

For example, some memories of a design get a version of their module that is made of LUTs, so that
the design fits a smaller FPGA.
"""

import re
from collections import Counter
from collections.abc import Mapping

_MODULE = re.compile(r"^(?:// [^\n]*\n)*module (\w+) .*?^endmodule\n", re.MULTILINE | re.DOTALL)
_INSTANCE = re.compile(r"^  (\w+)(?= (?:#|\w+ |\\\S+  )\($)", re.MULTILINE)


class Hierarchy:
    """The modules of a design in Verilog; the first one is the top module."""

    def __init__(self, verilog: str):
        modules = list(_MODULE.finditer(verilog))
        self._head = verilog[: modules[0].start()]
        self.texts = {module[1]: module[0] for module in modules}
        """Verilog of each module, with the comment above it, by name."""
        self.top = next(iter(self.texts))
        self._below: dict[str, Counter[str]] = {}
        self.copies = self._copies(self.top)
        """Number of copies of each module in the whole design; one of the top module."""

    def _copies(self, name: str) -> Counter[str]:
        """Return the number of copies of each module in one, itself included."""
        if name not in self._below:
            total = Counter({name: 1})
            for child in _INSTANCE.findall(self.texts[name]):
                if child in self.texts:
                    total += self._copies(child)
            self._below[name] = total
        return self._below[name]

    def with_variants(self, variants: Mapping[str, tuple[int, str]]) -> str:
        """Return the design's Verilog in which some instances of modules are replaced by variants.

        ``variants`` maps a module's name to (number of instances to replace, Verilog of the
        variant). A variant has the module's name and ports. Instances are replaced in depth-first
        order from the top module. The result has new module names with ``_tables`` for variants,
        and for changed copies of the modules around them.
        """
        written: dict[str, str] = {}
        names: dict[tuple[str, tuple[tuple[str, int], ...]], str] = {}

        def place(name: str, wanted: Counter[str]) -> str:
            """Return the name of a module with ``wanted`` variants in it."""
            key = (name, tuple(sorted(wanted.items())))
            if key not in names:
                alike = sum(known == name for known, _ in names)
                at_top = name == self.top
                names[key] = name if at_top or not wanted else f"{name}_tables"
                names[key] += f"_{alike + 1}" * (alike > 0 and bool(wanted))
                text = variants[name][1] if wanted[name] else self.texts[name]
                text = around(text, wanted - Counter([name]))
                written[names[key]] = text.replace(f"module {name} ", f"module {names[key]} ", 1)
            return names[key]

        def around(text: str, wanted: Counter[str]) -> str:
            left = wanted.copy()

            def child(instance: re.Match[str]) -> str:
                if instance[1] not in self.texts:
                    return instance[0]
                share = left & self._copies(instance[1])
                left.subtract(share)
                return f"  {place(instance[1], share)}"

            return _INSTANCE.sub(child, text)

        place(self.top, Counter({name: count for name, (count, _) in variants.items() if count}))
        order = [self.top, *sorted(set(written) - {self.top}, key=list(written).index)]
        return self._head + "\n".join(written[name] for name in order)
