"""The artefact of the compiler: programs, and the integer graph that they compute."""

from dataclasses import dataclass
from typing import Generic

from celosia.generators.graph.fewer_planes import coarser
from celosia.generators.graph.quantized import D, Graph
from celosia.generators.program.executable import Compiled


@dataclass(frozen=True, kw_only=True)
class Artefact(Compiled, Generic[D]):
    """A compiled model: its programs, the data that a host needs, and its integer graph."""

    graph: Graph[D]

    def graph_at(self, bits: int) -> Graph[D]:
        """Return the graph with only the upper ``bits`` bits (8, 4 or 2) of each nested weight.

        A run may read each of these numbers of bits.
        """
        return coarser(self.graph, bits)
