"""Every remedy that a refusal of a model, a tokenizer or an input names is followed here."""

import ast
import json
import shutil
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from safetensors.numpy import load_file, save_file

import celosia as api
from celosia.arch.packages import library
from celosia.arch.presets import PRESETS
from celosia.arch.tables import read_table
from celosia.generators.export.flash_images import power_on_image
from celosia.generators.frontend.hugging_face_folder import TABLES
from celosia.generators.frontend.llama2c import HEADER
from celosia.generators.frontend.sample_files import input_files, read_labels, read_samples
from celosia.generators.frontend.sources import load_source
from celosia.generators.frontend.text_sources import load_text
from celosia.generators.frontend.tokenizer import read_sentences
from celosia.generators.lower.early import check_memory
from celosia.generators.lower.encoder_compiler import Options, compile_model
from celosia.generators.quantize.options import Quantization
from celosia.generators.runtime.text_lengths import check_length
from celosia.opening import open_compiled
from tests.support.door import DECODERS, ENCODERS, Kind, decoder_folder, encoder_folder, reference
from tests.support.sentence_folders import FOLDERS
from tests.test_early import Large, sized
from tests.test_generators_hugging_face_text import GPT2, gpt2_tensors, write_folder
from tests.test_media import MEAN, PROCESSORS, STD, listener, vision_folder
from tests.test_onnx_forms import INT, Form, language_model
from tests.test_onnx_opsets import FLOAT, helper, onnx

transformers = pytest.importorskip("transformers", reason="transformers is not installed")
soundfile = pytest.importorskip("soundfile", reason="soundfile is not installed")
ROOT = Path(__file__).parents[1]
DATA = Path(__file__).parent / "data"
ELSEWHERE = {
    "; export the model with a fixed number of tokens": (
        "test_onnx_published.py::test_a_decoder_without_an_end_is_refused"
    ),
    "; give it with --context": "test_onnx_published.py::test_a_length_that_nodes_fix",
    "; make it for more with --context ": (
        "test_sentence_folders.py::test_texts_that_no_setting_cuts_are_refused"
    ),
    "; set 'default_prompt_name' to null in ": (
        "test_sentence_folders.py::test_settings_that_are_refused"
    ),
    "; make the model for at most ": (
        "test_early.py::test_rows_of_many_scores_are_refused_before_calibration"
    ),
    "; take one that continues a text": (
        "test_power_on_board.py::test_a_board_prints_characters_of_several_tokens"
    ),
    "; use verilator or icarus": "test_tb_trace.py::test_a_model_is_traced",
}
"""Other tests that follow remedies."""
VERBS = [
    *("add", "convert", "copy", "export", "give", "leave", "load", "make", "move", "put"),
    *("remove", "resample", "run", "save", "set", "take", "train", "use", "if"),
]


@contextmanager
def refused(*words: str) -> Iterator[None]:
    """Check that the block is refused with the words of remedies."""
    with pytest.raises(ValueError, match=r".") as error:
        yield
    for part in words:
        assert part in str(error.value), error.value


def change(path: Path, **settings: Any) -> None:
    """Change settings in a JSON file; None removes one."""
    content = json.loads(path.read_text()) if path.is_file() else {}
    content |= settings
    path.write_text(json.dumps({key: value for key, value in content.items() if value is not None}))


@pytest.fixture
def encoder(tmp_path: Path) -> Path:
    """Return the folder of an encoder of texts."""
    encoder_folder(ENCODERS[0], tmp_path / "encoder")
    return tmp_path / "encoder"


@pytest.fixture
def decoder(tmp_path: Path) -> Path:
    """Return the folder of a language model."""
    decoder_folder(DECODERS[0], tmp_path / "decoder")
    return tmp_path / "decoder"


def test_settings_that_are_taken_out(encoder: Path, decoder: Path) -> None:
    for folder, load in ((encoder, load_source), (decoder, load_text)):
        change(folder / "config.json", extra_gate=True)
        with refused("; if no output of the model depends on them, take them out of the file"):
            load(str(folder))
        change(folder / "config.json", extra_gate=None)
        load(str(folder))
    rope = {"rope_type": "default", "rope_theta": 1e4}
    change(decoder / "config.json", rope_parameters=rope | {"tilt": 1})
    with refused("; if no output of the model depends on it, take it out of the file"):
        load_text(str(decoder))
    change(decoder / "config.json", rope_parameters=rope)
    load_text(str(decoder))


def test_all_settings_that_stand_in_the_way_are_named(decoder: Path) -> None:
    config = decoder / "config.json"
    for changes, names in (
        ({"tilt": 1, "rake": 2}, ("'rake', 'tilt'",)),
        ({"hidden_size": "8", "rms_norm_eps": "small"}, ("'hidden_size'", "'rms_norm_eps'")),
    ):
        kept = config.read_text()
        change(config, **changes)
        with refused(*names):
            load_text(str(decoder))
        config.write_text(kept)
    load_text(str(decoder))


def test_weights_of_another_form(encoder: Path, decoder: Path) -> None:
    path = decoder / "model.safetensors"
    kept = path.read_bytes()
    for name in ("pytorch_model.bin", "tf_model.h5"):
        path.rename(decoder / name)
        with refused("; load it with transformers and save it with save_pretrained, which writes "):
            load_text(str(decoder))
        path.write_bytes(kept)
        load_text(str(decoder))
        (decoder / name).unlink()
    change(decoder / "config.json", quantization_config={"quant_method": "gptq", "bits": 4})
    with refused("; save the model in float32"):
        load_text(str(decoder))
    change(decoder / "config.json", quantization_config=None)
    load_text(str(decoder))
    tensors = load_file(encoder / "model.safetensors")
    name = next(iter(tensors))
    save_file(tensors | {name: tensors[name].astype(np.complex64)}, encoder / "model.safetensors")
    with refused("; save the model in float32"):
        load_source(str(encoder))
    save_file(tensors, encoder / "model.safetensors")
    load_source(str(encoder))


def test_two_vocabularies_are_untied(tmp_path: Path) -> None:
    folder = tmp_path / "pegasus"
    shutil.copytree(DATA / "pairs" / "pegasus", folder)
    tensors = load_file(folder / "model.safetensors")
    words = tensors["model.shared.weight"]
    more = {"model.encoder.embed_tokens.weight": words + 1, "lm_head.weight": words}
    save_file(tensors | more, folder / "model.safetensors")
    with refused("; set it to false if the model has both"):
        load_text(str(folder))
    change(folder / "config.json", tie_word_embeddings=False)
    load_text(str(folder))


FAMILIES = {
    "queries": ("llama", "qwen3"),
    "capped": ("gemma",),
    "parallel": ("llama", "gpt2"),
    "slopes": ("llama", "gpt2"),
    "experts": ("mistral", "qwen2"),
    "biases": ("blenderbot", "pegasus"),
    "pair": ("blenderbot", "pegasus"),
    "sounds": ("blenderbot", "pegasus"),
    "recurrent": ("llama",),
}
"""The kinds of folders that the reason of a refused kind names."""


def family(kind: str, folder: Path) -> None:
    """Write a folder of a kind that is read."""
    if kind == "gpt2":
        folder.mkdir()
        write_folder(folder, GPT2, gpt2_tensors())
    elif kind in ("blenderbot", "pegasus"):
        shutil.copytree(DATA / "pairs" / kind, folder)
    else:
        extra = {"gemma": {"head_dim": 4, "hidden_act": "gelu_pytorch_tanh"}}
        extra["qwen3"] = {"head_dim": 4}
        made = replace(DECODERS[0], model=kind)
        decoder_folder(made, folder, **extra.get(kind, {}))


@pytest.mark.parametrize("reason", FAMILIES)
def test_a_family_that_is_named_in_place_of_another_is_read(reason: str, tmp_path: Path) -> None:
    table = read_table(TABLES / "refused.toml")
    assert table.keys() == FAMILIES.keys()
    why = table[reason]["why"]
    for kind in FAMILIES[reason]:
        words = {"gpt2": "gpt-2", "llama": "transformers"} if reason == "recurrent" else {}
        assert words.get(kind, {"gpt2": "gpt-2"}.get(kind, kind)) in why.lower()
        folder = tmp_path / kind
        family(kind, folder)
        load_text(str(folder))
        for name in table[reason]["names"]:
            change(folder / "config.json", model_type=name)
            with refused(why):
                load_text(str(folder))


def test_a_language_model_runs_with_celosia_run(celosia, decoder: Path, tmp_path: Path) -> None:
    path = language_model(tmp_path / "model.onnx", 20)
    for model in (decoder, path):
        with refused("; run it with: celosia run "):
            load_source(str(model))
        words = ("--prompt", "hello" if model is decoder else "1 2", "--steps", "1")
        code, _, errors = celosia("run", model, *words, "--sim", "golden")
        assert code == 0, errors
    form = Form()
    form.save(path, form.block("x"))
    with refused("; run it with: celosia run "):
        load_text(str(path))
    code, _, errors = celosia("run", path, "--inputs", "random:1", "--sim", "golden")
    assert code == 0, errors


def test_parts_that_a_language_model_needs(tmp_path: Path) -> None:
    path = language_model(tmp_path / "model.onnx", 20, whole=False)
    words = "; export a decoder like GPT-2 with all of its layers, from token numbers to one score "
    with refused(words):
        load_text(str(path))
    with refused(words):
        load_source(str(path))
    load_text(str(language_model(path, 20)))


def test_tokenizers_that_are_converted(decoder: Path, encoder: Path) -> None:
    slow = transformers.ByT5Tokenizer(extra_ids=0)
    kind = Kind("bytes", "llama", lambda package: slow)
    decoder_folder(kind, decoder)
    (decoder / "tokenizer.json").unlink()
    with refused("; convert it to PreTrainedTokenizerFast and save that there"):
        load_text(str(decoder))
    tokenizers = library("tokenizers", "Tests need", "tokenizers")
    bytes_of = {f"<0x{byte:02X}>": 3 + byte for byte in range(256)}
    model = tokenizers.models.BPE(
        {"<pad>": 0, "</s>": 1, "<unk>": 2} | bytes_of, [], byte_fallback=True, unk_token="<unk>"
    )
    made = tokenizers.Tokenizer(model)
    made.decoder = tokenizers.decoders.Sequence(
        [tokenizers.decoders.ByteFallback(), tokenizers.decoders.Fuse()]
    )
    fast = transformers.PreTrainedTokenizerFast(tokenizer_object=made, unk_token="<unk>")
    fast.save_pretrained(str(decoder))
    text = load_text(str(decoder)).tokenizer
    assert text.encode("hé") == slow("hé", add_special_tokens=False)["input_ids"]
    assert text.decode(text.encode("hé")) == "hé"


def test_texts_of_lower_case_without_a_fast_tokenizer(tmp_path: Path) -> None:
    folder = tmp_path / "model"
    FOLDERS["lower"](folder)
    words = reference(folder).get_vocab()
    (folder / "tokenizer.json").unlink()
    ordered = sorted(words, key=words.get)
    (folder / "vocab.txt").write_text("\n".join(ordered) + "\n", encoding="utf-8")
    slow = {"tokenizer_class": "BertJapaneseTokenizer", "word_tokenizer_type": "basic"}
    change(folder / "tokenizer_config.json", do_lower_case=False, **slow)
    with refused("; take it out there, and set it in tokenizer_config.json"):
        load_source(str(folder))
    change(folder / "sentence_bert_config.json", do_lower_case=None)
    change(folder / "tokenizer_config.json", do_lower_case=True)
    source = load_source(str(folder))
    assert source.encode("HELLO").tolist() == source.encode("hello").tolist()


def test_tokenizers_that_fit(decoder: Path, tmp_path: Path) -> None:
    decoder_folder(DECODERS[-1], tmp_path / "other")
    other = load_text(str(tmp_path / "other"), decoder / "tokenizer.json")
    with refused("; give the tokenizer that it was trained with"):
        check_length(other.description, other.tokenizer.encode("שלום"), 1, 100)
    own = load_text(str(tmp_path / "other"))
    check_length(own.description, own.tokenizer.encode("שלום"), 1, 100)
    change(decoder / "config.json", bos_token_id=None)
    with refused("; give it one with --prompt"):
        load_text(str(decoder)).tokenizer.encode("")
    load_text(str(decoder)).tokenizer.encode("hello")


def test_pairs_and_padding(encoder: Path, tmp_path: Path) -> None:
    source = load_source(str(encoder))
    with refused("; take its Hugging Face folder, which has the table of both"):
        replace(source, types=None).encode("a\tb")
    assert source.encode("a\tb").shape[1] == 2
    padded = np.array([[2, 3, 4, 1]])
    with refused("; leave it out"):
        replace(source, padding=1).check(padded)
    replace(source, padding=1, shape=None).check(padded[:, :3])


def test_inputs_of_another_kind(encoder: Path, tmp_path: Path) -> None:
    source = load_source("digits")
    (tmp_path / "x.txt").write_text("hello\n")
    with refused("; give its inputs as .npy, not "):
        read_samples(tmp_path / "x.txt", source)
    drawn, values = tmp_path / "drawn", np.random.default_rng(1).normal(size=(2, 4, 4))
    drawn.mkdir()
    for name in "ab":
        Image.new("RGB", (9, 13)).save(drawn / f"{name}.png")
    with refused("; give them as .npy"):
        read_samples(drawn, source)
    texts = load_source(str(encoder))
    change(encoder / "preprocessor_config.json", image_processor_type="ViTImageProcessor")
    with refused("; give them as .npy"):
        read_samples(drawn, texts)
    shape = (2, source.description.tokens, source.description.features)
    values = np.random.default_rng(1).normal(size=shape)
    np.save(tmp_path / "x.npy", values)
    assert len(read_samples(tmp_path / "x.npy", source)) == 2
    np.save(tmp_path / "ids.npy", np.ones((2, 5), np.int64))
    assert len(read_samples(tmp_path / "ids.npy", texts)) == 2


def test_arrays_that_are_saved_again(tmp_path: Path) -> None:
    source = load_source("digits")
    values = np.ones((1, source.description.tokens, source.description.features))
    (tmp_path / "x.npy").write_text("no array")
    with refused("; save it with numpy.save"):
        read_samples(tmp_path / "x.npy", source)
    np.save(tmp_path / "x.npy", values)
    read_samples(tmp_path / "x.npy", source)
    (tmp_path / "x.npz").write_text("no archive")
    with refused("; save them with numpy.savez"):
        read_samples(tmp_path / "x.npz", source)
    np.savez(tmp_path / "x.npz", input=values)
    read_samples(tmp_path / "x.npz", source)


def test_files_and_lines_that_are_taken_out(tmp_path: Path) -> None:
    drawn = tmp_path / "drawn"
    drawn.mkdir()
    Image.new("L", (9, 13)).save(drawn / "a.png")
    (drawn / "notes.txt").write_text("x")
    with refused("; take it out, so that each file is an input"):
        input_files(drawn)
    (drawn / "notes.txt").unlink()
    assert len(input_files(drawn)) == 1
    path = tmp_path / "lines.txt"
    path.write_text("a\n\nb\n")
    with refused("; remove it, and its entries in other files"):
        read_sentences(path)
    path.write_text("a\nb\n")
    assert read_sentences(path) == ["a", "b"]
    source = replace(load_source("digits"), labels=("one", "one", *"abcdefgh"))
    path.write_text("one\n")
    with refused("; give the number of the right one"):
        read_labels(path, source)
    path.write_text("1\n")
    assert read_labels(path, source).tolist() == [1]


def test_images_and_their_settings(tmp_path: Path) -> None:
    drawn = tmp_path / "drawn"
    drawn.mkdir()
    Image.new("RGB", (20, 30), (200, 10, 10)).save(drawn / "a.png")
    how = {"image_processor_type": "ViTImageProcessor", "size": {"height": 9, "width": 9}}
    source = vision_folder(tmp_path / "model", how)
    with refused("; set 'size' and 'crop_size' there"):
        read_samples(drawn, source)
    for mended in ({"size": {"height": 8, "width": 8}}, {"do_center_crop": True, "crop_size": 8}):
        kind = "CLIPImageProcessor" if "crop_size" in mended else "ViTImageProcessor"
        (tmp_path / "model" / "preprocessor_config.json").unlink()
        mended = how | mended | {"image_processor_type": kind}
        change(tmp_path / "model" / "preprocessor_config.json", **mended)
        assert len(read_samples(drawn, source)) == 1
    alone = tmp_path / "alone"
    alone.mkdir()
    settings = alone / "preprocessor_config.json"
    change(settings, image_mean=MEAN, image_std=STD, crop_pct=0.9)
    with refused("; add 'image_processor_type' or 'feature_extractor_type'"):
        read_samples(drawn, replace(source, path=alone))
    change(settings, **PROCESSORS["convnext"])
    assert len(read_samples(drawn, replace(source, path=alone))) == 1


def test_sounds_and_their_settings(tmp_path: Path) -> None:
    sounds = tmp_path / "sounds"
    sounds.mkdir()
    samples = np.sin(np.arange(4000) / 9)
    soundfile.write(sounds / "a.wav", samples, 16000)
    source = listener(tmp_path / "model", {"sampling_rate": 8000}, (2000,))
    with refused("; resample it, for example with: ffmpeg -i a.wav -ar 8000 resampled.wav"):
        read_samples(sounds, source)
    resample = library("scipy.signal", "Tests need", "scipy").resample_poly
    soundfile.write(sounds / "a.wav", resample(samples, 1, 2), 8000)
    assert len(read_samples(sounds, source)) == 1
    model = DATA / "sounds" / "model"
    shutil.copytree(model, tmp_path / "spectrograms")
    settings = tmp_path / "spectrograms" / "preprocessor_config.json"
    rate = json.loads(settings.read_text())["sampling_rate"]
    soundfile.write(sounds / "a.wav", samples, rate)
    change(settings, hop=80)
    read = load_source(str(tmp_path / "spectrograms"))
    with refused("; remove it"):
        read_samples(sounds, read)
    change(settings, hop=None)
    assert len(read_samples(sounds, read)) == 1


def test_checkpoints_and_other_files(celosia, tmp_path: Path) -> None:
    path = tmp_path / "model.bin"
    path.write_bytes(bytes(HEADER.size))
    good = ROOT / "examples" / "stories260k" / "stories260K.bin"
    folder = DATA / "zoo" / "0_LlamaForCausalLM"
    words = "; use such a file, an ONNX file, or a folder with config.json and model.safetensors"
    with refused(words):
        load_text(str(path))
    (tmp_path / "model.other").write_bytes(b"x")
    words = "; use a folder, an ONNX file (.onnx), a llama2.c checkpoint (.bin), or a name of the "
    with refused(words):
        load_source(str(tmp_path / "model.other"))
    for model in (good, language_model(tmp_path / "model.onnx", 20), folder, "tales"):
        load_text(str(model))
    with refused("it holds tensors alone; give the folder with it and config.json"):
        load_source(str(folder / "model.safetensors"))


def spoil_sparse(model: Any) -> None:
    dense = model.graph.initializer.pop(0)
    array = onnx.numpy_helper.to_array(dense).ravel()
    values = onnx.numpy_helper.from_array(array, dense.name)
    places = onnx.numpy_helper.from_array(np.arange(array.size), "places")
    sparse = helper.make_sparse_tensor(values, places, dense.dims)
    model.graph.sparse_initializer.append(sparse)


def spoil_size(model: Any) -> None:
    model.graph.initializer[0].dims[0] = -6


def spoil_bytes(model: Any) -> None:
    tensor = model.graph.initializer[0]
    tensor.raw_data = tensor.raw_data[:-4]


def spoil_type(model: Any) -> None:
    model.graph.input[0].type.tensor_type.elem_type = 99


def spoil_axis(model: Any) -> None:
    model.graph.input[0].type.tensor_type.shape.dim[1].dim_value = -4


def spoil_tensor(model: Any) -> None:
    shape = [1, 4, 6]
    sequence = helper.make_tensor_sequence_value_info("x", FLOAT, shape)
    model.graph.input[0].CopyFrom(sequence)


def spoil_opset(model: Any) -> None:
    model.opset_import[0].version = 6


def insert(*nodes: Any, tensors: Any = ()) -> Callable[[Any], None]:
    """Return a function that puts nodes between the input and its readers."""

    def spoil(model: Any) -> None:
        for node in model.graph.node:
            node.input[:] = ["x2" if name == "x" else name for name in node.input]
        for node in reversed(nodes):
            model.graph.node.insert(0, node)
        model.graph.initializer.extend(tensors)

    return spoil


BODY = helper.make_graph(
    [helper.make_node("Identity", ["go"], ["on"]), helper.make_node("Neg", ["s"], ["t"])],
    "body",
    [
        helper.make_tensor_value_info("i", INT, []),
        helper.make_tensor_value_info("go", onnx.TensorProto.BOOL, []),
        helper.make_tensor_value_info("s", FLOAT, [1, 4, 6]),
    ],
    [
        helper.make_tensor_value_info("on", onnx.TensorProto.BOOL, []),
        helper.make_tensor_value_info("t", FLOAT, [1, 4, 6]),
    ],
)
COUNT = helper.make_tensor("n", INT, [], [2])
DROP = helper.make_tensor("on", onnx.TensorProto.BOOL, [], [True])
SPOILED: dict[str, Callable[[Any], None]] = {
    "; export the model with dense tensors": spoil_sparse,
    "has the shape [-6, 6]; export the model again": spoil_size,
    "numbers of its shape [6, 6]; export the model again": spoil_bytes,
    "has elements of the unknown type 99; export the model again": spoil_type,
    "; export the model with another one": spoil_axis,
    "; export a model that takes tensors": spoil_tensor,
    "; export it again with an opset from ": spoil_opset,
    "; export the model with its loops written out, as torch.onnx.export with dynamo=True does": (
        insert(helper.make_node("Loop", ["n", "", "x"], ["x2"], body=BODY), tensors=[COUNT])
    ),
    "; export the model after model.eval(), or leave it out": insert(
        helper.make_node("RandomNormalLike", ["x"], ["r"]),
        helper.make_node("Add", ["x", "r"], ["x2"]),
    ),
    "; export it again after model.eval()": insert(
        helper.make_node("Dropout", ["x", "", "on"], ["x2"]), tensors=[DROP]
    ),
    "; convert the model with other parts": insert(helper.make_node("Digamma", ["x"], ["x2"])),
}


@pytest.mark.parametrize("words", SPOILED)
def test_graphs_that_are_exported_again(words: str, tmp_path: Path) -> None:
    form, path = Form(), tmp_path / "model.onnx"
    x = form.add("Add", "x", form.attention("x"))
    hidden = form.linear(x, 9)
    cubed = form.add("Mul", form.add("Pow", hidden, np.float32(3)), np.float32(0.044715))
    inner = form.add("Mul", form.add("Add", hidden, cubed), np.float32(0.7978845608))
    half = form.add("Mul", hidden, np.float32(0.5))
    gelu = form.add("Mul", half, form.add("Add", form.add("Tanh", inner), np.float32(1)))
    form.save(path, form.add("Add", x, form.linear(gelu, 6, 9)))
    good = path.read_bytes()
    model = onnx.load(str(path))
    SPOILED[words](model)
    path.write_bytes(model.SerializeToString())
    with refused(words):
        load_source(str(path))
    path.write_bytes(good)
    assert load_source(str(path)).description.activation == "gelu_tanh"


def test_tensors_in_files_beside_the_graph(tmp_path: Path) -> None:
    form, path = Form(), tmp_path / "model.onnx"
    form.save(path, form.block("x"))
    saved = {"save_as_external_data": True, "location": "weights", "size_threshold": 0}
    onnx.save(onnx.load(str(path)), str(path), **saved)
    content = (tmp_path / "weights").read_bytes()
    (tmp_path / "weights").unlink()
    with refused(f"; put it into the folder {tmp_path}"):
        load_source(str(path))
    (tmp_path / "weights").write_bytes(content[:-4])
    with refused("; copy the file again"):
        load_source(str(path))
    (tmp_path / "weights").write_bytes(content)
    load_source(str(path))


def test_images_of_open_size_and_graphs_without_attention(tmp_path: Path) -> None:
    path = tmp_path / "vit.onnx"
    model = onnx.load(str(DATA / "zoo" / "vit_older.onnx"))
    fixed = model.graph.input[0].type.tensor_type.shape.dim[2].dim_value
    model.graph.input[0].type.tensor_type.shape.dim[2].dim_param = "height"
    onnx.save(model, str(path))
    with refused("; export the model with one"):
        load_source(str(path))
    model.graph.input[0].type.tensor_type.shape.dim[2].dim_value = fixed
    onnx.save(model, str(path))
    load_source(str(path))
    form = Form()
    form.save(path, form.add("Exp", "x"))
    with refused("; give a Transformer encoder"):
        load_source(str(path))
    form = Form()
    form.save(path, form.block("x"))
    load_source(str(path))


def test_programs_and_their_folders(celosia, tmp_path: Path) -> None:
    with refused("; leave out tokenizer x"):
        api.load("digits", tokenizer="x")
    with refused("; leave out tokens, which is 9"):
        api.load("tales", tokens=9)
    api.load("tales")
    model = tmp_path / "model.onnx"
    shutil.copy(ROOT / "examples" / "onnx" / "patches.onnx", model)
    made = tmp_path / "made"
    with refused(f"; make one with: celosia compile {model} --out build/model"):
        open_compiled(model)
    with pytest.warns(UserWarning, match="; give inputs like those to come as calibration"):
        program = api.compile(api.load(model))
    inputs = program.model.examples(2)
    with warnings.catch_warnings(action="error"):
        api.compile(api.load(model), calibration=inputs)
    with refused("; use run"):
        next(program.generate("one"))
    program.run(inputs)
    program.save(made)
    opened = api.open(made)
    with refused("; load and compile the model"):
        _ = opened.with_model
    assert program.with_model
    with refused("; compile it again with: celosia compile MODEL --out "):
        change(made / "model.json", origin=None)
        open_compiled(made)
    words = ("compile", model, "--out", made)
    code, _, errors = celosia(*words)
    assert code == 2
    assert "; give them with --inputs or --calibration, or ask for random ones with " in errors
    code, _, errors = celosia(*words, "--inputs", "random:2")
    assert code == 0, errors
    open_compiled(made)
    model.rename(tmp_path / "away.onnx")
    with refused("; put the model back, or give rows of the machine's input to celosia.open(fol"):
        open_compiled(made)
    rows = program.model.source.rows(program.model.source.prepare(inputs[0]))
    assert len(api.open(made).run([rows]).outputs) == 1
    (tmp_path / "away.onnx").rename(model)
    open_compiled(made)


def test_inputs_of_commands(celosia, encoder: Path, tmp_path: Path) -> None:
    graph = ROOT / "examples" / "onnx" / "patches.onnx"
    (tmp_path / "x.txt").write_text("hello\n")
    for model, words, given in (
        (encoder, "; give them with --inputs FILE", tmp_path / "x.txt"),
        (graph, "; give them with --inputs FILE.npy, or ask for random ones with ", "random:1"),
    ):
        way = ("--sim", "golden", "--config", "small")
        code, _, errors = celosia("run", model, *way)
        assert code == 2
        assert words in errors
        more = ("--calibration", given) if model is encoder else ()
        code, _, errors = celosia("run", model, "--inputs", given, *more, *way)
        assert code == 0, errors


def test_weights_that_are_trained_again() -> None:
    source = load_source("digits")
    model = source.description
    inputs = np.random.default_rng(1).uniform(0, 1, (4, model.tokens, model.features))
    for part, value, words in (
        ("layers.1.key.weight", np.nan, "; train or export the model again"),
        ("layers.0.attention_norm.weight", 1e6, "; rescale the model's weights, or calibrate on "),
    ):
        wrong = {name: np.array(values, np.float64) for name, values in source.weights.items()}
        wrong[part].flat[0] = value
        with refused(words):
            compile_model(model, wrong, inputs, PRESETS["small"], Options(search=False))
    compile_model(model, source.weights, inputs, PRESETS["small"], Options(search=False))


def test_memory_of_many_weights() -> None:
    model, config = sized(16), PRESETS["medium"].replace(mem_addr_width=27)
    with refused("; set mem_addr_width=28 or more"):
        check_memory(model, Large(model), config, Quantization())
    check_memory(model, Large(model), config.replace(mem_addr_width=28), Quantization())


def test_an_image_without_inputs() -> None:
    program = api.compile(api.load("digits")).code
    without = replace(program, output=replace(program.output, columns=1))
    values = [np.zeros(1)]
    with refused("; leave out the inputs, and a host can run it"):
        power_on_image(without, program.config, values, (), 256)
    assert power_on_image(without, program.config, [], (), 256)


def remedies() -> Iterator[tuple[str, str]]:
    """Yield the file and the words of every remedy in a sentence of the frontend."""
    folders = ("generators", "tb/models", "celosia")
    paths = (path for folder in folders for path in (ROOT / folder).glob("*.py"))
    for path in sorted([*paths, *(ROOT / "generators").glob("*/**/*.py")]):
        content = path.read_text(encoding="utf-8")
        tree = ast.parse(content if "; " in content and "InputError" in content else "")
        notes = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
        for node in ast.walk(tree):
            if id(node) in notes or not isinstance(node, ast.JoinedStr | ast.Constant):
                continue
            parts = node.values if isinstance(node, ast.JoinedStr) else [node]
            for part in parts:
                text = part.value if isinstance(part, ast.Constant) else ""
                for tail in text.split("; ")[1:] if isinstance(text, str) else []:
                    if tail.split(" ")[0] in VERBS:
                        yield path.name, tail


def test_every_remedy_is_followed() -> None:
    own = [
        node.value.partition("; ")[2]
        for node in ast.walk(ast.parse(Path(__file__).read_text(encoding="utf-8")))
        if isinstance(node, ast.Constant) and "; " in str(node.value)
    ]
    listed = [*remedies()]
    assert len(listed) > 40
    for name, words in listed:
        followed = any(words.startswith(text) or text.startswith(words) for text in own if text)
        assert followed or words.startswith("install"), f"{name}: {words}"
    for place in ELSEWHERE.values():
        name, _, test = place.partition("::")
        tests = (Path(__file__).parent / name).read_text(encoding="utf-8")
        assert f"def {test}(" in tests
