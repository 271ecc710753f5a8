"""Edges of the functions that lower models: exact limits, and parts that fill a memory."""

import re
from functools import partial
from itertools import product
from types import SimpleNamespace

import numpy as np
import pytest

from celosia.arch.errors import InputError
from celosia.arch.isa import DEFINITIONS, Engine, Opcode
from celosia.arch.presets import PRESETS
from celosia.generators.frontend.text_shapes import untrained
from celosia.generators.graph.operations import Linear
from celosia.generators.graph.tensors import Tensor
from celosia.generators.lower.accumulators import Accumulators
from celosia.generators.lower.blocks import Blocks, by_columns, by_rows
from celosia.generators.lower.checks import checked_graph
from celosia.generators.lower.choices import DataPlacement
from celosia.generators.lower.cuts import cuts_of
from celosia.generators.lower.decoder import Layers
from celosia.generators.lower.fill import fills
from celosia.generators.lower.fitting import FitError
from celosia.generators.lower.lower import lower
from celosia.generators.lower.lowering import Lowering
from celosia.generators.lower.moves import load
from celosia.generators.lower.plan import kind, runs
from celosia.generators.lower.planner import plan
from celosia.generators.lower.residence import Cache, Memory
from celosia.generators.lower.schedule import first_plans
from celosia.generators.lower.spill import Spill
from celosia.generators.lower.staging import least_size
from celosia.generators.lower.text_compiler import compile_text
from celosia.generators.program.allocate import Use, fit, middle_banks_address, uses
from celosia.generators.program.draft import Draft, Ref, Repeat, flatten
from celosia.generators.program.tokens import Access, order
from celosia.generators.quantize.options import Quantization
from celosia.generators.quantize.quantize import quantize_model
from celosia.generators.reference.integers import evaluate
from celosia.sim.regions import Region
from celosia.tb.models.text_session import TextSession
from celosia.tb.verify.random_models import random_inputs, random_weights
from tests.support.compiled_cases import MODEL
from tests.support.decoders import CONFIGS, DECODERS, GPT, LLAMA, random_decoder, tokens_of

SMALL = PRESETS["small"]


def tensor(rows: int, columns: int) -> Tensor:
    return Tensor("some", "some", rows, columns, 1.0)


def widths(blocks: Blocks) -> list[int]:
    return [blocks.stride(column) for column in blocks.column_marks]


@pytest.mark.parametrize("units", [(4, 2), (3,), (8, 1)])
def test_blocks_of_columns_are_as_few_as_their_size_allows(units) -> None:
    for rows, columns in product((1, 4), range(1, 14)):
        some = tensor(rows, columns)
        for most in range(1, some.bytes + 3):
            made = widths(by_columns(some, most, units))
            assert sum(made) == columns
            if some.bytes <= most:
                assert made == [columns]
                continue
            unit = next((unit for unit in units if unit * rows <= most), units[-1])
            assert all(width % unit == 0 for width in made[:-1])
            assert max(made) <= max(unit, most // rows)
            room = max(most // rows // unit, 1) * unit
            assert len(made) == -(-columns // room)


@pytest.mark.parametrize("changes", [{}, {"mem_width": 128}, {"scratchpad_align": 4}])
def test_blocks_of_rows_fill_whole_words(changes) -> None:
    config = SMALL.replace(**changes)
    for rows, columns in product((1, 5, 24), (4, 12, 20)):
        some = tensor(rows, columns)
        for most in range(1, some.bytes + 3, 7):
            blocks = by_rows(some, most, config)
            heights = [min(blocks.row_step, rows - row) for row in blocks.row_marks]
            assert sum(heights) == rows
            assert len(heights) == 1 or some.bytes > most
            for height in heights[:-1]:
                assert height * some.stride % config.mem_bytes == 0
                assert height % config.scratchpad.align == 0
            words = [r for r in range(1, rows + 1) if r * some.stride % config.mem_bytes == 0]
            least = next((r for r in words if r % config.scratchpad.align == 0), rows)
            assert max(heights) * some.stride <= max(most, least * some.stride)


def encoder(config, model=MODEL):
    rng = np.random.default_rng(1)
    inputs = random_inputs(rng, model)
    return quantize_model(model, random_weights(rng, model), inputs, config)


def test_a_machine_has_exactly_what_a_model_needs() -> None:
    """A graph is refused without its units, or one below a length, and fits with just that."""
    graph = encoder(SMALL)
    longest = max(op.weight.shape[0] for op in graph.ops if isinstance(op, Linear))
    rows = max(MODEL.tokens, MODEL.dim)
    check = partial(checked_graph, graph, cache=Cache(graph.places, 0))
    check(SMALL.replace(max_k=longest, max_row=rows))
    for field, least in (("max_k", longest), ("max_row", rows)):
        message = (
            f"Model toy needs {field} of at least {least}, but configuration small has {least - 1}"
        )
        with pytest.raises(FitError, match=f"^{message}$") as refused:
            check(SMALL.replace(**{field: least - 1}))
        assert refused.value.remedies == ({field: least},)
    for unit in ("softmax", "b_transpose"):
        message = f"Model toy needs the unit {unit}, which configuration small leaves out"
        with pytest.raises(FitError, match=f"^{message}$") as refused:
            check(SMALL.replace(**{unit: False, "fused": False}))
        assert refused.value.remedies == ({unit: True},)
    with pytest.raises(
        InputError, match=r"^Model toy has operands of 8 bits, but operand_width is 7$"
    ):
        check(SMALL.replace(operand_width=7, max_k=longest, max_row=rows))


@pytest.mark.parametrize("loops", [False, True])
@pytest.mark.parametrize("sizes", [(3,), (3, 2), (3, 3), (3, 3, 3, 1), (2, 1, 1)])
def test_equal_parts_are_a_loop_if_a_loop_is_chosen(loops, sizes) -> None:
    pieces = [(sum(sizes[:place]), size) for place, size in enumerate(sizes)]
    shared = SimpleNamespace(
        choices=SimpleNamespace(loop_parts=loops), accumulators=Accumulators(SMALL, "toy")
    )
    nodes = Lowering.lower_parts(shared, pieces, lambda *part: [Draft(Opcode.MAP, {"m": part[1]})])
    repeated = [len(node.iterations) for node in nodes if isinstance(node, Repeat)]
    alike = sizes.count(sizes[0])
    assert repeated == ([alike] if loops and alike > 1 else [])
    assert sum(repeated) + len(nodes) - len(repeated) == len(sizes)


def test_a_sample_of_layers_takes_the_memory_of_all() -> None:
    model = MODEL.replace(layers=9)
    graph = encoder(SMALL, model)
    (choices, *_), *_ = first_plans(graph, SMALL, sparse=False)[0]
    sample, whole = (lower(graph, SMALL, choices, sample=each) for each in (True, False))
    assert sample.missing > 0 == whole.missing
    assert len(sample.layers) + sample.missing == len(whole.layers) == 9
    assert sample.image_bytes == whole.image_bytes == whole.image.size
    assert type(sample.image_bytes) is int
    # The bytes of a sample's image are not known, and nobody asks for them.
    assert sample.image.size == 0


def test_large_blocks_come_back_byte_for_byte() -> None:
    """A block of several moves returns from where it was stored, each byte to its place."""
    config = SMALL.replace(scratchpad_bytes=1 << 16, scratchpad_banks=2)
    sizes = dict.fromkeys("abc", 24_008)

    def write(name: str) -> Draft:
        operands = {"i_addr": Ref(name), "o_addr": Ref(name), "m": 1, "n": 8}
        return Draft(Opcode.MAP, operands, defines=name)

    def read(name: str) -> Draft:
        return Draft(Opcode.MAP, {"i_addr": Ref(name), "o_addr": Ref(name), "m": 1, "n": 8})

    nodes = [write("a"), write("b"), write("c"), read("a"), read("b"), read("c")]
    spill = Spill([nodes], sizes, uses(nodes), config, 1000)
    spilled = spill.run()
    assert spilled is not None
    held: dict[int, str] = {}
    outside: dict[int, tuple[str, int]] = {}
    for draft in flatten(spilled.sections[0]):
        place = draft.operands.get("sp_addr")
        if draft.opcode == Opcode.MAP:
            place = draft.operands["o_addr"]
            held[spilled.addresses[place.buffer]] = place.buffer.partition("@")[0]
            continue
        name, size = (
            place.buffer.partition("@")[0],
            draft.operands["m"] * draft.operands["row_bytes"],
        )
        first = draft.operands["dram_addr"]
        for byte in range(0, size, 8):
            if draft.opcode == Opcode.STORE:
                outside[first + byte] = name, place.offset + byte
            else:
                assert outside[first + byte] == (name, place.offset + byte)
    loads = [draft for draft in flatten(spilled.sections[0]) if draft.opcode == Opcode.LOAD]
    moved = sum(draft.operands["m"] * draft.operands["row_bytes"] for draft in loads)
    assert len(loads) > 1
    assert moved % -(-24_008 // config.line_bytes * config.line_bytes) == 0


def test_what_one_text_makes_is_made_at_once() -> None:
    """Queries are cut in two only for several texts, whose keys share slots."""
    decoder = random_decoder(LLAMA.replace(heads=8, kv_heads=4, head_dim=8, dim=32))
    config = CONFIGS["resident"].replace(rows=16, cols=8)
    for texts, heads in product((1, 2), (1, 2)):
        cuts = cuts_of(decoder, config, DataPlacement(1, rows_stay=True, key_heads=heads), texts)
        parts = cuts.query_parts
        tiles = -(-cuts.query_starts[-1] // 8)
        assert [first for first, _ in parts] == [0, *(sum(part) for part in parts[:-1])]
        assert sum(parts[-1]) == tiles
        assert (len(parts) > 1) == (texts > 1 and heads > 1)


def test_uses_of_two_buffers_count_for_both() -> None:
    def matmul(a: str, b: str) -> Draft:
        return Draft(Opcode.MATMUL, {"a_addr": Ref(a), "b_addr": Ref(b)})

    def drain(target: str, beside: str) -> Draft:
        return Draft(Opcode.DRAIN, {"o_addr": Ref(target), "r_addr": Ref(beside)})

    drafts = [
        matmul("a", "b"),
        matmul("a", "b"),
        drain("c", "a"),
        drain("c", "a"),
        matmul("a", "b"),
    ]
    used = uses(drafts)
    for name, other in product("abc", "abc"):
        assert used[name].beside.get(other, 0) == used[other].beside.get(name, 0)
    # In one instruction a pair counts four times, in neighbours of two engines once.
    assert used["a"].beside["b"] == 3 * 4 + 2 + 1
    assert used["a"].beside["c"] == 2 * 4 + 2 + 1
    assert used["b"].beside["c"] == 2 + 1


def test_a_buffer_fits_a_gap_of_its_size() -> None:
    line = SMALL.line_bytes
    used = {"some": Use([(0, 1)])}
    for lines in range(1, 4):
        fixed = [(0, line), ((1 + lines) * line, SMALL.bank_bytes)]
        assert fit(used, {"some": lines * line}, SMALL, fixed) == {"some": line}
        assert fit(used, {"some": lines * line + 1}, SMALL, fixed) is None


@pytest.mark.parametrize("seed", range(6))
def test_setup_programs_are_as_few_as_memory_and_program_allow(seed) -> None:
    rng = np.random.default_rng(seed)
    image = rng.integers(0, 256, 4000).astype(np.uint8)
    drafts, end = list[Draft](), 0
    while end < len(image) - 400:
        m, row = (int(number) for number in rng.integers(1, 20, 2))
        drafts += [load(Ref("some"), end, m, row), Draft(Opcode.PARAMS, {"n": m})]
        end += m * row
    words = {opcode: DEFINITIONS[opcode].words for opcode in Opcode}
    most, depth = (400, 9999) if seed % 2 else (9999, 8 * max(words.values()))
    config = SMALL.replace(program_depth=depth)
    made = fills(drafts, image[:end], config, most, lambda some: [draft.opcode for draft in some])
    assert b"".join(fill.image for fill in made) == image[:end].tobytes()
    assert sum(len(fill.words) for fill in made) == len(drafts)
    lengths = [words[Opcode.HALT] + sum(words[opcode] for opcode in fill.words) for fill in made]
    assert max(lengths) <= depth
    assert max(len(fill.image) for fill in made) <= most
    first = 0
    for fill, length, following in zip(made, lengths, made[1:], strict=False):
        first += len(fill.words)
        draft = drafts[first]
        bytes_of = draft.operands.get("m", 0) * draft.operands.get("row_bytes", 0)
        # The next instruction has no room in the part before it.
        assert length + words[draft.opcode] > depth or len(fill.image) + bytes_of > most
        assert following.words[0] == draft.opcode


def test_setup_programs_load_an_image_in_any_order() -> None:
    image = np.random.default_rng(1).integers(0, 256, 640).astype(np.uint8)
    drafts = [load(Ref("some"), addr, 2, 32) for addr in range(576, -1, -64)]
    loads = list[Draft]()
    made = fills(drafts, image, SMALL, 130, lambda some: loads.extend(some) or [0])
    assert len(made) == 5
    moved = iter(loads)
    for fill in made:
        for start in (0, 64):
            assert next(moved).number("dram_addr") == start
        assert len(fill.image) == 128
    assert b"".join(fill.image for fill in made) == image.reshape(10, 64)[::-1].tobytes()


def test_a_table_across_two_banks_fits_them() -> None:
    config = SMALL.replace(scratchpad_bytes=4096, scratchpad_banks=8)
    assert middle_banks_address(32, 32, config) == 2048 - 512
    assert middle_banks_address(38, 32, config) is None
    assert middle_banks_address(8, 32, config) is None


def test_a_step_waits_itself_for_what_it_must_follow() -> None:
    """An order that another engine's token implies is no reason to leave a token out."""
    for source, between in ((Engine.VECTOR, Engine.LOAD), (Engine.LOAD, Engine.VECTOR)):
        regions = Region("sp", 0, 8, 1, 8), Region("sp", 64, 8, 1, 8)
        accesses = [
            Access(source, [], [regions[0]]),
            Access(between, [regions[0]], [regions[1]]),
            Access(Engine.MATRIX, [regions[1]], [], after=[0]),
        ]
        tokens = order(accesses, SMALL)
        assert tokens[2].pop == {source, between}


def test_the_smallest_piece_has_a_group_and_its_scales() -> None:
    config = CONFIGS["streamed"]
    grouped = config.replace(weight_formats="int4", weight_group=64)
    for each, rows in ((config, config.array.rows), (grouped, 64 + 1)):
        least = max(256, rows * config.array.cols)
        assert least_size(each) == least
        message = (
            f"Model llama comes to the chip in pieces of {least} bytes, but external memory has "
            f"{least - 1}"
        )
        with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
            compile_text(DECODERS["llama"], each, context=8, memory_bytes=least - 1)


@pytest.mark.parametrize("model", [LLAMA, GPT])
def test_sums_behind_attention_take_the_rows_of_its_sums(monkeypatch, model) -> None:
    """Those of the MLP and of the head lie at the end, those of two heads or parts apart."""
    lifetimes: dict[str, tuple[int, int, bool]] = {}
    named = Accumulators.named

    def noted(self, name, rows, *, later=False):
        first = named(self, name, rows, later=later)
        lifetimes[name] = first, max(rows, lifetimes.get(name, (0, 0))[1]), later
        return first

    monkeypatch.setattr(Accumulators, "named", noted)
    decoder = random_decoder(model.replace(vocabulary=900, layers=1))
    compile_text(decoder, CONFIGS["streamed"], context=12)
    order_of = [op for op in decoder.ops if isinstance(op, Linear)]
    mlp = {kind(op.target) for op in order_of if re.search(r"active|up|hidden|mlp", op.target.name)}
    assert len(mlp) >= 2
    heads = {name for name in lifetimes if re.fullmatch(r"head\d", name)}
    assert len(heads) == 2
    assert {name for name, (_, _, later) in lifetimes.items() if later} == mlp | heads
    for pair in (sorted(heads), ["scores0", "scores1"], ["context0.0", "context1.0"]):
        (first, rows, _), (other, more, _) = (lifetimes[name] for name in pair)
        assert first + rows <= other or other + more <= first


def test_words_for_sums_have_their_room() -> None:
    memory = Memory("toy", SMALL.replace(fused=True, pre_depth=3, param_depth=8))
    for count in (2, 2):
        memory.take_words(np.zeros((count, 4), np.uint8), for_sums=True)
    message = "Model toy requantizes accumulators with 4 parameter words, but pre_depth is 3"
    with pytest.raises(FitError, match=f"^{message}$") as refused:
        memory.check_words()
    assert refused.value.remedies == ({"pre_depth": 4, "param_depth": 8},)
    Memory("toy", memory.config.replace(pre_depth=4), pre_words=memory.pre_words).check_words()


@pytest.mark.parametrize("model", ["llama", "gpt"])
def test_sums_that_others_are_multiplied_beside_are_in_the_other_bank(model) -> None:
    """A step drains keys beside the product of queries, and one half of an MLP beside the other."""
    decoder, config = DECODERS[model], CONFIGS["resident"]
    made = plan(
        decoder, config, Cache(12, 0), DataPlacement(4, rows_stay=True), 1 << 14, sparse=False
    )
    linears = [op for op in decoder.ops if isinstance(op, Linear)]
    step, chunk = (Layers(made, rows, decoder) for rows in (1, 4))
    query, key, value, _, *hidden, narrow = (
        step.sums(op) % 2 for op in linears[: 6 + decoder.description.gated]
    )
    assert query != key == value
    assert hidden[-1] != narrow
    assert len(set(hidden)) == len(hidden)
    assert {chunk.sums(op) % 2 for op in linears} == {0}


@pytest.mark.parametrize(
    ("model", "changes"),
    [
        ("gpt", {"rows": 5, "cols": 6, "lanes": 4}),
        ("llama", {"rows": 5, "cols": 6, "lanes": 4, "weight_depth": 2048}),
        ("gpt", {"lanes": 3}),
        ("gpt", {"lanes": 1, "param_depth": 2048}),
    ],
)
@pytest.mark.parametrize("alike", [True, False])
def test_lanes_that_tiles_do_not_fill(model, changes, alike) -> None:
    decoder = DECODERS[model]
    if not alike:
        places = 80 if model == "llama" else 0
        options = Quantization(texts=2, length=24, places=places, alike=False)
        decoder = untrained(decoder.description, options)
        assert len(runs(decoder.attentions[0].scores, decoder.description.heads)) > 1
    config = CONFIGS["resident"].replace(rotary=model == "llama", **changes)
    session = TextSession(compile_text(decoder, config, context=9, rows=1), "golden")
    tokens = tokens_of(decoder, 4)
    for token in tokens:
        assert session.step(token).mismatches == 0
    assert np.array_equal(session.logits(), evaluate(decoder, tokens)["logits"][-1])
