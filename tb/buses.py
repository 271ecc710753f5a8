"""Models of external memory behind a bus, for cocotb benches."""

from tb.axi4 import AxiMemory
from tb.wishbone import WishboneMemory, WishbonePackage

MODELS = {"axi4": AxiMemory, "wishbone": WishboneMemory, "wishbone_package": WishbonePackage}
"""Each model by name; the last and the first are packages of others."""
