"""Every remedy that a refusal of a model, a tokenizer or an input names is followed here.

Those of graphs and of inputs have files beside this one.
"""

import ast
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from safetensors.numpy import load_file, save_file

from celosia.arch.packages import library
from celosia.arch.tables import read_table
from celosia.generators.frontend.hugging_face_folder import TABLES
from celosia.generators.frontend.llama2c import HEADER
from celosia.generators.frontend.sample_files import read_samples
from celosia.generators.frontend.sources import load_source
from celosia.generators.frontend.text_sources import load_text
from celosia.generators.runtime.text_lengths import check_length
from tests.support.door import DECODERS, ENCODERS, Kind, decoder_folder, encoder_folder, reference
from tests.support.remedies import DATA, ROOT, change, refused
from tests.support.sentence_folders import FOLDERS
from tests.test_generators_hugging_face_text import GPT2, gpt2_tensors, write_folder
from tests.test_onnx_forms import Form, language_model

transformers = pytest.importorskip("transformers", reason="transformers is not installed")
soundfile = pytest.importorskip("soundfile", reason="soundfile is not installed")
ELSEWHERE = {
    "; export the model with a fixed number of tokens": (
        "test_onnx_published.py::test_a_decoder_without_an_end_is_refused"
    ),
    "; give it with --context": "test_onnx_published.py::test_a_length_that_nodes_fix",
    "; give its Hugging Face folder": (
        "test_onnx_files.py::test_files_of_tensors_have_at_most_2_gib"
    ),
    "; make it for more with --context ": (
        "test_sentence_folders.py::test_texts_that_no_setting_cuts_are_refused"
    ),
    "; save it with 8, for example as ": (
        "test_media.py::test_images_of_more_than_8_bits_are_refused"
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
        for path in Path(__file__).parent.glob("test_remedies*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
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
