"""Parts of lowering, each alone: places of loads, sizes of buffers, and rows of products."""

import dataclasses
from types import SimpleNamespace

import numpy as np
import pytest

from celosia.arch.errors import InputError
from celosia.arch.instruction import unpack
from celosia.arch.isa import Opcode
from celosia.arch.presets import PRESETS
from celosia.generators.frontend.description import ModelDescription
from celosia.generators.frontend.text_shapes import untrained
from celosia.generators.graph.operations import Linear
from celosia.generators.lower.accumulators import Accumulators
from celosia.generators.lower.artefact import Artefact
from celosia.generators.lower.batch import batched
from celosia.generators.lower.blocks import blocks_of
from celosia.generators.lower.cached import Cached
from celosia.generators.lower.choices import MOST_AHEAD, Choices, DataPlacement
from celosia.generators.lower.cuts import cuts_of
from celosia.generators.lower.decoder import Layers
from celosia.generators.lower.encoder_compiler import Options, compile_model, compiled_trial
from celosia.generators.lower.equipment import equipped
from celosia.generators.lower.fitting import FitError
from celosia.generators.lower.instructions import fused
from celosia.generators.lower.lower import SAMPLED, lower
from celosia.generators.lower.planner import plan
from celosia.generators.lower.residence import Cache, Memory, Register, WeightHome, of_text
from celosia.generators.lower.schedule import LOOPS, TOGETHER_FIRST, first_plans, schedule
from celosia.generators.lower.search import PlacedTrial, Search
from celosia.generators.lower.staging import STAGES, WEIGHTS, WORDS, Stage, least_size
from celosia.generators.lower.text_compiler import data_placements
from celosia.generators.lower.token_attention import TokenAttention
from celosia.generators.lower.weights import coded_bytes
from celosia.generators.program.allocate import middle_banks_address
from celosia.generators.program.draft import Draft, Ref, flatten
from celosia.generators.program.image import ImageBuilder
from celosia.generators.program.layout import aligned_rows
from celosia.generators.quantize.options import Quantization
from celosia.generators.quantize.quantize import quantize_model
from celosia.tb.verify.fuzz.models import differs
from celosia.tb.verify.random_models import random_inputs, random_weights
from tests.support.compiled_cases import MODEL
from tests.support.decoders import CONFIGS, DECODERS, GPT, HELD, LLAMA, PAIRS
from tests.test_generators_lower import encoder

SMALL = PRESETS["small"]


def test_loads_of_weights_come_behind_others_of_the_same_place() -> None:
    image = ImageBuilder(SMALL)
    stage, piece = Stage(Memory("some", SMALL), image), image.add(np.zeros(8, np.uint8))
    stage.piece(piece, WORDS)
    for _ in range(STAGES + 1):
        places = [stage.piece(piece, kind) for kind in (WEIGHTS, WORDS)]
        stage.add(*(Draft(Opcode.MAP, {"i_addr": place}) for place in places))
    loads = [each.operands["sp_addr"] for each in stage.take() if each.opcode == Opcode.LOAD]
    weights = [f"stage{number}" for number in range(STAGES)]
    words = [f"words{number}" for number in range(STAGES)]
    assert [place.buffer for place in loads] == [*words, *weights, "words0", "words1", "stage0"]


def test_a_piece_has_room_for_a_word_of_many_lanes() -> None:
    wide = SMALL.replace(rows=4, cols=64, lanes=64)
    assert least_size(wide) == wide.word_bytes > 4 * 64


def test_a_row_of_bytes_has_zeros_up_to_the_alignment_alone() -> None:
    rows = aligned_rows(np.full((2, 3), 7, np.uint8), SMALL.replace(scratchpad_align=4))
    assert rows.tolist() == [[7, 7, 7, 0]] * 2


def test_only_rows_that_come_in_chunks_are_multiplied_in_chunks() -> None:
    """Those of a pool come at once, so only the last columns after it are, for the end's sake."""
    graph = batched(encoder(SMALL, MODEL.replace(classes=50)), 8)
    (choices, *_), *_ = first_plans(graph, SMALL, sparse=False)[0]
    chosen = dataclasses.replace(choices, height=2, blob_bytes=512, loop_parts=False)
    drafts = [flatten(item.body) for item in lower(graph, SMALL, chosen, 8).after]
    rows = [[each.number("m") for each in item if each.opcode == Opcode.MATMUL] for item in drafts]
    assert rows[1:-1] == [[1] * 8, [8], [8], [8], [2] * 4]


def test_rows_of_a_decoder_without_shared_slots_have_only_its_queries() -> None:
    for name, count in (("streamed", 3), ("resident", 2)):
        placements = data_placements(DECODERS["llama"], CONFIGS[name], Cache(12, 0), 4, 1)
        assert [placement.key_heads for placement in placements] == [1] * count
        assert placements[0].is_at_most(placements[-1])
        (most,) = {
            placement.rows
            for placement in data_placements(DECODERS["llama"], CONFIGS[name], Cache(40, 0), 64, 1)
        }
        assert most == 24


def test_a_source_is_counted_in_buffers_and_in_products() -> None:
    size = {"vocabulary": 8, "positions": 4, "dim": 8, "layers": 1, "heads": 1, "ffn": 8}
    size |= {"kv_heads": 1, "head_dim": 8, "source_layers": 1, "source_positions": 8}
    asked, placement = (
        Quantization(texts=1, length=4, weights="int4", low_rank=1),
        DataPlacement(1, rows_stay=False),
    )
    pair, config = untrained(GPT.replace(**size), asked), equipped(CONFIGS["streamed"], asked)
    made = plan(pair, config, Cache(4, 0), placement, 1 << 14, sparse=False)
    # Two rows of probabilities for each token of the source, and a correction's row for each.
    assert made.memory.buffers["probabilities"] == 2 * 8 * 8
    assert made.blocks["hidden_thin"].rows == 8
    # Eight matrices with corrections, and four scores and contexts for each token.
    macs = Artefact.source_macs(SimpleNamespace(graph=pair), 4)
    assert macs == 4 * (8 * (8 * 8 + 2 * 8) + 4 * (8 + 8))


def test_registers_of_the_host_are_adjacent() -> None:
    assert [of_text(each, 0) for each in Register] == [*range(1, 1 + len(Register))]


def test_trials_have_a_sample_of_the_layers() -> None:
    config = SMALL.replace(program_depth=1 << 14)
    search = Search(encoder(config, MODEL.replace(layers=SAMPLED + 1)), config, 1)
    (choices, *_), *_ = first_plans(search.model, config, sparse=False)[0]
    trial = search.try_out(dataclasses.replace(choices, loop_layers=False))
    sampled, whole = (
        len(each.program.entries["encode"].written) for each in (trial, search.finish(trial))
    )
    assert sampled < whole


def test_layers_that_end_with_the_next_norm_are_sampled_with_the_last_layer() -> None:
    config = PRESETS["odd"].replace(program_depth=1 << 14)
    model, rng = MODEL.replace(tokens=16, dim=48, layers=12), np.random.default_rng(1)
    weights, inputs = random_weights(rng, model), random_inputs(rng, model, 1)
    quantized = quantize_model(model, weights, inputs, config)
    search = Search(quantized, config, 1)
    plans = first_plans(quantized, config, sparse=False)[0]
    choices = dataclasses.replace(plans[0][0], loop_layers=False, ends_ahead=True)
    trial = search.try_out(choices)
    assert trial.source.lowered.missing
    compiled = compiled_trial(quantized, config, search.finish(trial), 1)
    assert differs(compiled, weights, inputs) == ""


def compiled(model, config, fields, chosen=None):
    """Return the first plan with other fields, compiled, with its weights and an input."""
    rng = np.random.default_rng(0)
    weights, inputs = random_weights(rng, model), random_inputs(rng, model, 1)
    quantized = quantize_model(model, weights, inputs, config, Options(chosen=chosen or {}))
    search = Search(quantized, config, 1)
    plan = dataclasses.replace(first_plans(quantized, config, sparse=False)[0][0][0], **fields)
    trial = search.finish(search.try_out(plan))
    return compiled_trial(quantized, config, trial, 1), weights, inputs


@pytest.mark.parametrize(("placement", "ends"), [("pre", True), ("post", True), ("pre", False)])
def test_loads_follow_the_last_use_of_what_they_replace(placement, ends) -> None:
    # A block of the source comes before the parameters that were loaded with the first one.
    sizes = {"tokens": 8, "features": 8, "dim": 16, "layers": 4, "heads": 2, "ffn": 32}
    model = ModelDescription(name="toy", **sizes, placement=placement)
    config = SMALL.replace(program_depth=1 << 14)
    made = compiled(model, config, {"block_bytes": 128, "ends_ahead": ends})
    assert made[0].plan.ahead == MOST_AHEAD
    assert differs(*made) == ""


def test_loads_follow_the_last_use_in_a_layer_with_other_formats() -> None:
    model = ModelDescription(name="toy", tokens=8, features=8, dim=32, layers=2, heads=2, ffn=64)
    forms = {
        name: "ternary" if ("up" in name or "down" in name) == ("layers.0" in name) else "int8"
        for name, shape in model.shapes().items()
        if len(shape) == 2 and name.startswith("layers.")
    }
    config = SMALL.replace(program_depth=1 << 14, weight_formats="ternary")
    for blob in (1024, 1280):
        made = compiled(model, config, {"blob_bytes": blob, "ends_ahead": True}, forms)
        assert differs(*made) == ""


def test_a_model_without_values_in_blocks_is_exact() -> None:
    sizes = {"tokens": 48, "features": 8, "dim": 16, "layers": 3, "heads": 2, "ffn": 64}
    model = ModelDescription(name="toy", **sizes, values=False)
    config = PRESETS["medium"].replace(scratchpad_bytes=1 << 14, program_depth=1 << 13)
    rng = np.random.default_rng(0)
    weights, inputs = random_weights(rng, model), random_inputs(rng, model, 1)
    assert (
        differs(
            compile_model(model, weights, inputs, config, Options(search=False)), weights, inputs
        )
        == ""
    )


@pytest.mark.parametrize(
    ("name", "layers", "looped", "ahead"),
    [("medium", 2, False, True), ("odd", 2, False, False), ("micro", 3, True, False)],
)
def test_layers_end_with_the_next_norm_if_that_is_faster(name, layers, looped, ahead) -> None:
    """The iterations of a loop are equal, which the last one of three is not."""
    model = encoder(PRESETS[name], MODEL.replace(layers=layers))
    chosen = schedule(model, PRESETS[name]).source.choices
    assert (chosen.loop_layers, chosen.ends_ahead) == (looped, ahead)


def test_a_faster_program_that_does_not_fit_as_a_whole_is_not_used(monkeypatch) -> None:
    finish, plain = Search.finish, schedule(encoder(SMALL), SMALL).source.choices
    assert plain.ends_ahead

    def refused(search: Search, best: PlacedTrial) -> PlacedTrial:
        if best.source.choices.ends_ahead:
            raise FitError("too long")
        return finish(search, best)

    monkeypatch.setattr(Search, "finish", refused)
    assert not schedule(encoder(SMALL), SMALL).source.choices.ends_ahead


def test_weights_stay_also_where_layers_cannot_end_with_the_next_norm(monkeypatch) -> None:
    config = SMALL.replace(mem_width=16)
    try_out, chosen = Search.try_out, schedule(encoder(config), config).source.choices
    assert chosen.ends_ahead
    assert chosen.home != WeightHome.STREAM

    def refused(search: Search, plan: Choices) -> PlacedTrial:
        if plan.ends_ahead and plan.home != WeightHome.STREAM:
            raise FitError("too long")
        return try_out(search, plan)

    monkeypatch.setattr(Search, "try_out", refused)
    kept = schedule(encoder(config), config).source.choices
    assert (kept.ends_ahead, kept.home) == (False, chosen.home)


@pytest.mark.parametrize(
    ("changes", "spills", "kinds"),
    [
        # Too many words with the largest loads: nothing smaller and nothing that spills.
        ({"program_depth": 16}, False, {(True, False, False)}),
        ({"program_depth": 16}, True, {(True, False, False)}),
        # Loops with loads in one place may have half of the words.
        ({"program_depth": 200}, True, {(True, False, False), (False, False, False)}),
        # Tensors alone exceed the scratchpad: loads in one place do not help.
        ({"scratchpad_bytes": 256}, False, {(True, False, False)}),
        ({"scratchpad_bytes": 256}, True, None),
    ],
)
def test_plans_that_cannot_help_are_not_tried(monkeypatch, changes, spills, kinds) -> None:
    tried, config = set(), SMALL.replace(**changes)

    def try_out(search: Search, plan: Choices, try_out=Search.try_out):
        tried.add((plan.piped, plan.reloads, plan.spills))
        return try_out(search, plan)

    monkeypatch.setattr(Search, "try_out", try_out)
    with pytest.raises(FitError):
        schedule(encoder(config), config, search=False, spills=spills)
    assert tried == kinds if kinds else any(spill for *_, spill in tried)


def test_only_a_plain_drain_of_the_rows_of_a_norm_joins_it() -> None:
    drained = {"acc_addr": 0, "acc_stride": 1, "o_addr": 8, "o_stride": 8, "m": 2, "n": 8}
    drain = Draft(Opcode.DRAIN, {**drained, "params": 3})
    norm = Draft(Opcode.NORM, {"i_addr": 8, "i_stride": 8, "o_addr": 8, "m": 2, "n": 8})
    assert [each.opcode for each in fused([drain, norm], keep=False)] == [Opcode.NORM]
    for change in ({"flags": frozenset({"relu"})}, {"operands": {**drain.operands, "n": 4}}):
        apart = [dataclasses.replace(drain, **change), norm]
        assert fused(apart, keep=False) == apart


def test_a_program_is_tried_first_with_one_head_and_with_several() -> None:
    plans = first_plans(encoder(SMALL), SMALL, sparse=False)[0]
    looped = sum(heads or parts for _, heads, parts in LOOPS)
    several = [*TOGETHER_FIRST] * (len(LOOPS) - looped)
    firsts = sorted(series[0].together for series in plans)
    assert firsts == sorted([*several, *[TOGETHER_FIRST[0]] * looped])


@pytest.mark.parametrize(("capacity", "commands"), [(24, 1), (40, 2)])
def test_a_softmax_is_cut_if_products_run_beside_it_for_long(capacity, commands) -> None:
    decoder, placement = DECODERS["llama"], DataPlacement(1, rows_stay=True)
    made = plan(decoder, CONFIGS["fused"], Cache(capacity, 0), placement, 1 << 14, sparse=False)
    make = Layers(made, 1, decoder)
    (probabilities,), *_ = TokenAttention(make, decoder.attentions[0], 0).token_steps()
    assert sum(each.opcode == Opcode.SOFTMAX for each in probabilities()) == commands


def test_hidden_tensors_of_layers_pass_and_those_of_heads_are_written_anew() -> None:
    config = SMALL.replace(scratchpad_bytes=1 << 14)
    graph = encoder(config, MODEL.replace(tokens=16, dim=24, ffn=512))
    assert blocks_of(graph, 1024, config)["hidden"].passes
    (choices, *_), *_ = first_plans(graph, config, sparse=False)[0]
    for layer in lower(graph, config, choices).layers:
        drafts = [each for item in layer for each in flatten(item.body)]
        assert {"query", "key", "value"} <= {each.defines for each in drafts}


def test_all_weights_are_coded() -> None:
    graph = encoder(SMALL)
    linears = [op for op in graph.ops if isinstance(op, Linear)]
    assert coded_bytes(graph, SMALL) == sum(op.weight.size for op in linears)


def test_a_short_input_of_a_sparse_model_is_loaded_without_the_row_that_it_lacks() -> None:
    size = {"tokens": 2, "features": 8, "dim": 24, "ffn": 40, "layers": 1, "variable": True}
    model, rng = MODEL.replace(**size), np.random.default_rng(1)
    weights, inputs = random_weights(rng, model), random_inputs(rng, model)
    weights = {name: value * (rng.random(value.shape) < 0.1) for name, value in weights.items()}
    config, options = SMALL.replace(sparse_lanes=8), Options(sparse=True, search=False)
    compiled = compile_model(model, weights, inputs, config, options)
    assert Opcode.SPARSE in {instruction.opcode for instruction in unpack(compiled.words)}
    whole = len(compiled.image) - compiled.output_piece.size
    assert compiled.least_bytes() == whole - compiled.passing_bytes
    assert compiled.least_bytes() - compiled.least_bytes(1) == 8


def test_sums_without_room_name_the_rows_that_they_need() -> None:
    with pytest.raises(FitError, match="needs 3000 accumulator rows or more") as refused:
        Accumulators(SMALL, "some").named("some", 3000)
    assert refused.value.remedies == ({"acc_depth": 4096},)


@pytest.mark.parametrize("dim", [8 * 4, 8 * 5])
def test_texts_are_apart_if_their_products_are_long(dim) -> None:
    model = LLAMA.replace(dim=dim, vocabulary=8 * 80, heads=2, kv_heads=2, head_dim=8)
    decoder = SimpleNamespace(description=model, key_dim=8)
    cuts = cuts_of(decoder, CONFIGS["resident"], DataPlacement(1, rows_stay=True), 2)
    assert cuts.apart == (dim == 8 * 5)


@pytest.mark.parametrize(
    ("depth", "block", "width", "columns"),
    [(256, 1 << 14, 8, [24]), (256, 64, 8, [8] * 3), (32, 1 << 14, 16, [16] * 3)],
)
def test_contexts_are_drained_together_in_a_block_and_half_of_the_accumulators(
    depth, block, width, columns
) -> None:
    """Scores of several columns are one tensor, which the first of them begins."""
    config = SMALL.replace(acc_depth=depth, fused=False)
    graph = encoder(config, MODEL.replace(layers=1, tokens=8, dim=24, head_dim=width))
    chosen = dict.fromkeys(("loop_layers", "loop_heads", "loop_parts"), False)
    (choices, *_), *_ = first_plans(graph, config, sparse=False)[0]
    made = lower(
        graph, config, dataclasses.replace(choices, together=4, block_bytes=block, **chosen)
    )
    drafts = [each for item in made.layers[0] for each in flatten(item.body)]
    written = [each.written for each in drafts if each.opcode == Opcode.DRAIN and each.written]
    assert [each.columns for each in written if each.name.endswith("context")] == columns


def test_scores_are_written_anew_by_their_first_columns_alone() -> None:
    config = SMALL.replace(fused=False, acc_depth=32)
    graph = encoder(config, MODEL.replace(layers=1, tokens=20))
    (choices, *_), *_ = first_plans(graph, config, sparse=False)[0]
    drafts = [
        each for item in lower(graph, config, choices).layers[0] for each in flatten(item.body)
    ]
    drains = [each for each in drafts if each.written and each.written.name.endswith("scores")]
    assert drains
    for each in drains:
        buffer = each.operands["o_addr"].buffer
        assert each.defines == ("" if each.written.column else buffer)


def test_half_of_a_large_table_is_in_each_of_the_middle_banks() -> None:
    middle = 2 * SMALL.bank_bytes
    assert middle_banks_address(500, 64, SMALL) == middle - 250 * 64
    assert [middle_banks_address(rows, 64, SMALL) for rows in (10, 5000)] == [None, None]


def test_zeros_before_queries_are_loaded_once_and_pairs_of_keys_have_lower_rows() -> None:
    model = LLAMA.replace(heads=4, kv_heads=4, head_dim=4, layers=1)
    config = HELD.replace(lanes=2, rows=8, cols=4, weight_depth=4096, param_depth=1024)
    decoder, placement = (
        untrained(model, Quantization(texts=1, length=4)),
        DataPlacement(1, True, key_heads=2),
    )
    made = plan(decoder, config, Cache(8, 0), placement, 1 << 14, sparse=False)
    places = [each.operands["sp_addr"] for each in made.setup if each.opcode == Opcode.LOAD]
    assert places.count(Ref("query")) == 1
    decoder, placement = DECODERS["llama_int4"], DataPlacement(1, rows_stay=True)
    made = plan(decoder, PAIRS, Cache(8, 0), placement, 1 << 14, sparse=False)
    (kept,) = made.kept[decoder.attentions[0].key.name]
    assert Cached(Layers(made, 1, decoder), kept).lower == {"lower"}


def test_queries_of_heads_that_share_slots_have_their_sums_in_order() -> None:
    model = LLAMA.replace(heads=6, kv_heads=3, head_dim=4, layers=1)
    config = HELD.replace(lanes=2, rows=8, cols=4, weight_depth=4096, param_depth=1024)
    decoder = untrained(model, Quantization(texts=1, length=4))
    placement = DataPlacement(2, rows_stay=True, key_heads=2)
    made = plan(decoder, config, Cache(8, 0), placement, 1 << 14, sparse=False)
    make = Layers(made, 2, decoder)
    make.linear(next(op for op in decoder.layers[0] if isinstance(op, Linear)))
    products = [each for each in make.take() if each.opcode == Opcode.MATMUL]
    places = [each.number("acc_addr") - products[0].number("acc_addr") for each in products]
    # Heads 2 and 3 have zeros of a tile column ahead of each of their queries.
    assert places == [2 * column for column in (0, 3, 6)]


def test_a_batch_of_inputs_of_any_length_is_refused() -> None:
    graph = SimpleNamespace(description=MODEL.replace(variable=True))
    with pytest.raises(InputError, match="has variable true, which excludes a batch of 2"):
        batched(graph, 2)
