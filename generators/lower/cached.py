"""Instructions that write an attention's keys and values to the KV cache, and locate them there.

The KV cache is in the scratchpad, in external memory, or in the array's weight storage.
"""

from collections.abc import Iterator
from dataclasses import replace
from itertools import count, islice

from celosia.arch.isa import Opcode
from celosia.generators.graph.tensors import Tensor
from celosia.generators.lower.attention import Attended
from celosia.generators.lower.blocks import Blocks, parts
from celosia.generators.lower.instructions import View, Work, preload
from celosia.generators.lower.moves import load, store
from celosia.generators.lower.plan import INPUTS
from celosia.generators.lower.projections import Instructions
from celosia.generators.lower.residence import Kept, Register, of_text
from celosia.generators.program.draft import Given, Ref, Written
from celosia.generators.quantize.options import NARROW_BITS


class Cached:
    """Makes the instructions that write keys and values to the KV cache.

    An instance is for one attention and one text. It also provides the addresses from which other
    instructions read the keys and values.
    """

    def __init__(self, make: Instructions, kept: Kept):
        self.make, self.plan, self.kept = make, make.plan, kept
        self.tokens = make.rows // make.texts
        self.m = 1 if self.tokens == 1 else make.m
        self.config, self.model, self.stage = make.config, make.model, make.stage
        self.key_dim = make.decoder.key_dim
        self.widths = {"keys": self.model.kv_heads * self.key_dim, "values": self.model.kv_width}
        self.paired = self.plan.paired(kept)
        """Slots hold values of two heads, or two tile columns of a head's values."""
        self.paired_keys = self.paired and make.decoder.key_bits < NARROW_BITS
        """Slots hold keys of two heads."""
        self.together = max(self.plan.data_placement.key_heads, 1 + self.paired_keys)
        """Heads whose keys are appended at once."""
        lower = self.paired_keys and make.decoder.full_width_key_columns > 0
        self.block = frozenset({"block"} if self.paired and make.decoder.block else ())
        self.lower = frozenset({"lower"}) if lower else frozenset[str]()

    def recall(self) -> None:
        """Add instructions that load cached keys and values from external memory to the scratchpad.

        Nothing is added if the cache is not in external memory. If the cache stores input rows,
        from which keys and values are computed, these rows are loaded instead.
        """
        for name, addr in self.kept.outside.items():
            stride = self.plan.cache_strides[name]
            self.stage.add(load(Ref(name), addr, self.kept.count, stride))

    def remember(self) -> None:
        """Add instructions that store the new tokens' input rows in the cache.

        The method is for an attention whose cache stores its input rows instead of keys and values.
        Each run computes the keys and values of all tokens from these rows.
        """
        (word,) = self.make.params((self.plan.words[INPUTS], 0, 0))
        dim, inputs = self.model.dim, View(Ref("h"), self.model.dim)
        target, written = self.target(INPUTS), Written(INPUTS)
        work = Work(inputs, target, self.m, dim, word, written)
        self.stage.add(work.requantize(Opcode.MAP, "per_tensor"))
        self.keep()

    def keep(self) -> None:
        """Add instructions that store the new tokens' keys and values in external memory.

        If the KV cache is not in external memory, nothing is added. If the cache stores the inputs
        of attention instead of keys and values, the new tokens' inputs are stored.
        """
        for addr, place, stride in self._moved():
            self.stage.add(store(place, addr, self.m, stride))

    def complete_synchronization(self) -> None:
        """Append loads that receive the last synchronization tokens of a loop over layers.

        In the loop, the loads of each layer wait for tokens that instructions of the previous layer
        send. The appended loads receive the tokens of the last layer. No instruction reads the data
        that they load.
        """
        for addr, place, stride in self._moved():
            self.stage.add(load(place, addr, self.m, stride))

    def _moved(self) -> Iterator[tuple[Given, Given, int]]:
        """Yield external address, place and stride of the new tokens' keys and values."""
        for name, addr in self.kept.outside.items():
            view = self.target(name)
            assert isinstance(view.place, Given)
            yield replace(view.place, base=addr), view.place, view.stride

    def target(self, name: str) -> View:
        """Return the scratchpad address and row stride to which a run writes its new tokens' data.

        ``name`` selects the data: ``keys``, ``values`` or ``inputs`` of attention.

        - Keys and values, if the cache is in weight slots or stores inputs: a temporary buffer.
        - Otherwise: the first new token's row in the cache, or in a copy of a cache in external
          memory.
        """
        if name != INPUTS and (self.plan.cuts.resident or self.kept.made):
            return View(Ref(name, self.kept.text * self.widths[name]), self.widths[name])
        view, register = self.rows(name), Register.VALUE if name == "values" else Register.KEY
        if not self.kept.grows:
            return view
        most = (self.kept.capacity - self.tokens) * view.stride
        assert isinstance(view.place, Ref)
        return View(Given(of_text(register, self.kept.text), most, view.place), view.stride)

    def rows(self, name: str) -> View:
        """Return the scratchpad address and row stride of an attention's cached data.

        ``name`` is ``keys``, ``values`` or ``inputs``. There is one row for each token. All layers
        use the same rows in two cases: for a cache in external memory, and for keys and values that
        each run computes again from cached inputs.
        """
        if self.kept.inputs is not None:
            kept = View(self.kept.inputs, self.plan.cache_strides[INPUTS])
            return kept if name == INPUTS else View(Ref(name), self.widths[name])
        buffer = name if self.plan.data_placement.passing else f"{name}{self.kept.name}"
        return View(Ref(buffer), self.plan.cache_strides[name])

    def append_keys(self) -> None:
        """Add instructions that write the new tokens' keys into weight slots, each key as a column.

        A weight slot is storage in the array for one weight tile. The array multiplies queries by
        the keys in slots without loading them. If keys are not in slots, nothing is added.
        """
        flags = frozenset({"append", "b_transpose"})
        flags |= {"pair", *self.lower} if self.paired_keys else set()
        for head, slots in [*enumerate(self.kept.keys)][:: self.together]:
            key = self.target("keys").behind(head * self.key_dim)
            slot = self.kept.preload_operand(Register.KEY, slots.first)
            line = self.kept.preload_operand(Register.KEY_LINE)
            below = min(self.plan.data_placement.key_heads, self.model.kv_heads - head)
            self.stage.add(preload(key, below * self.key_dim, self.m, slot, line, flags))

    def append_values(self) -> None:
        """Add instructions that write the new tokens' values into weight slots.

        A weight slot is storage in the array for one weight tile. Each token's values become one
        row of the slots. If values are not kept in slots, nothing is added.
        """
        flags = self.block | {"append"} | ({"pair"} if self.paired else set())
        tiles, width = parts(self.model.head_dim, self.config.array.cols), self.model.head_dim
        slots = (
            (slots.first, head * width + column, n)
            for head, kept in enumerate(self.kept.values)
            for slots, (column, n) in zip(kept, tiles, strict=True)
        )
        for first, column, n in islice(slots, None, None, 1 + self.paired):
            slot = self.kept.preload_operand(Register.VALUE, first)
            line = self.kept.preload_operand(Register.VALUE_LINE)
            value = self.target("values").behind(column)
            self.stage.add(preload(value, self.m, n, slot, line, flags))

    def attended(self, name: str, tensor: Tensor, width: int) -> Attended:
        """Return the location of an attention's cached keys or values, as ``name`` selects.

        ``width`` is the number of columns of a head. The result's ``slots[head][tile]`` is (number
        of a weight slot, flags of instructions that read the slot). If the cache is not in weight
        slots, ``slots`` is empty.
        """
        view, rows, number = self.rows(name), self.kept.capacity, count()
        assert isinstance(view.place, Ref)
        blocks = Blocks(view.place.buffer, rows, view.stride, 1, rows, view.stride)
        kept, paired, flags = self.kept.values, self.paired, self.block
        if name == "keys":
            kept, paired, flags = (
                tuple((each,) for each in self.kept.keys),
                self.paired_keys,
                self.lower,
            )
        slots = [
            [(each.first, flags | _half(next(number), paired)) for each in tiles] for tiles in kept
        ]
        return Attended(name, tensor, width, blocks, slots)


def _half(tile: int, paired: bool) -> frozenset[str]:
    """Return the flags of one of the tiles, in pairs in the order of their columns."""
    return frozenset(("pair", "second")[: 1 + tile % 2] if paired else ())
