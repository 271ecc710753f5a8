"""celosia compile of language models: the folder runs as the model does, and is all it takes."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from celosia.arch.presets import load
from celosia.generators.frontend.text_sources import load_text
from celosia.generators.quantize.options import Quantization
from celosia.generators.reference.cache import KvCache
from celosia.generators.reference.integers import evaluate
from celosia.sim.interpreter import Interpreter
from celosia.tb.machine.toolchain import missing_tools

SMALL = ("--config", "small", "--context", "24")
PROMPT = ("--prompt", "one", "--steps", "2", "--json")


def compiled(celosia, folder: Path, model: str, *options: str) -> dict:
    """Compile a language model to a folder, and return the figures."""
    code, output, errors = celosia("compile", model, *options, "--out", folder, "--json")
    assert code == 0, errors
    return json.loads(output)


def said(celosia, *words: str | Path) -> dict:
    """Return the figures of ``celosia run``."""
    code, output, errors = celosia("run", *words, "--sim", "golden")
    assert code == 0, errors
    report = json.loads(output)
    assert report["mismatches"] == 0
    return report


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the place of a compiled folder that several tests read."""
    return tmp_path_factory.mktemp("compiled") / "tales"


class Host:
    """A host that knows a compiled folder's files and nothing else, on the golden machine."""

    def __init__(self, folder: Path):
        self.known = json.loads((folder / "model.json").read_text())
        self.machine = Interpreter(load(str(folder / "config.toml")))
        for fill in self.known["setup"]:
            self.machine.write_memory(0, (folder / fill["image"]).read_bytes())
            self.machine.load_program(np.fromfile(folder / fill["program"], "<u4").tolist())
            self.machine.start()
        words = np.fromfile(folder / "program.bin", "<u4").tolist()
        assert [int(line, 16) for line in (folder / "program.hex").read_text().split()] == words
        self.machine.load_program(words)

    def write(self, entry: str, tokens: list[int], text: int = 0, **numbers: int) -> None:
        """Write the registers of an entry, for one of its texts."""
        for register, value in self.known["calls"][entry.partition(".")[0]].items():
            number = numbers.get(value["index"], 0)
            if value["index"] == "token":
                number = tokens[value["row"]] if value["row"] < len(tokens) else 0
            if value["modulo"]:
                number %= value["modulo"]
            number = number // value["divide"] * value["times"]
            behind = text * self.known.get("text_registers", 0)
            self.machine.set_register(int(register.removeprefix("R")) + behind, number)

    def start(self, entry: str, tokens: list[int], **numbers: int) -> None:
        """Write the registers of an entry and run it."""
        self.write(entry, tokens, **numbers)
        self.machine.start(self.known["program"]["entries"][entry])

    def take(self, tokens: list[int], position: int) -> None:
        """Process tokens, the first at a given position."""
        rows, numbers = len(tokens), self.numbers(len(tokens), position)
        if rows > 1:
            self.start("words", tokens, **numbers)
        self.start("step" if rows == 1 else "chunk", tokens, **numbers)

    def take_both(self, tokens: list[int], positions: list[int]) -> None:
        """Take a token of each of two texts."""
        first, second = ([token] for token in tokens)
        self.write("step", second, 1, **self.numbers(1, positions[1]))
        self.start("step", first, **self.numbers(1, positions[0]))

    def numbers(self, rows: int, position: int) -> dict[str, int]:
        """Return what registers are made from, for tokens of which the first has a position."""
        cache = self.known["cache"]
        most, sinks = cache["capacity"], cache["sinks"]
        place = position
        if position >= most:
            place = sinks + (position - sinks) % (most - sinks)
        return {
            "position": position,
            "place": place,
            "count": min(position + rows, most),
            "limit": min(position + 1, most),
            "rows": rows,
            "last": rows - 1,
        }

    def logits(self) -> np.ndarray:
        """Return the scores behind the last token."""
        self.start("logits", [])
        piece = self.known["logits"]
        return np.frombuffer(self.machine.read_memory(piece["addr"], 2 * piece["columns"]), "<i2")


@pytest.mark.parametrize(("config", "context"), [("small", 10), ("story", 15)])
def test_the_files_are_all_that_a_host_needs(
    celosia, tmp_path: Path, config: str, context: int
) -> None:
    words = ("--config", config, "--context", f"{context}:2")
    result = compiled(celosia, tmp_path / "out", "tales", *words)
    assert set(result["files"]) == {path.name for path in (tmp_path / "out").iterdir()}
    host, source = Host(tmp_path / "out"), load_text("tales")
    assert result["predicted_cycles"] == host.known["cycles"] > 0
    decoder, cache = source.quantize(Quantization()), KvCache(slots=context, sinks=2)
    tokens = source.tokenizer.encode("one day a quiet")
    host.take(tokens[:3], 0)
    evaluate(decoder, tokens[:3], cache)
    for position in range(3, len(tokens)):
        host.take([tokens[position]], position)
        wanted = evaluate(decoder, [tokens[position]], cache)["logits"][-1]
        assert np.array_equal(host.logits(), wanted)


def test_the_files_are_all_that_a_host_of_two_texts_needs(celosia, tmp_path: Path) -> None:
    both = ("--prompt", "one day", "--prompt", "a")
    words = ("--config", "small", "--context", "9:2")
    result = compiled(celosia, tmp_path / "out", "tales", *words, *both)
    host, source = Host(tmp_path / "out"), load_text("tales")
    assert result["predicted_cycles"] == host.known["cycles"] > 0
    decoder = source.quantize(Quantization())
    texts = [source.tokenizer.encode(text) for text in ("the small fox", "one day")]
    caches = [KvCache(slots=9, sinks=2) for _ in texts]
    for run in range(len(texts[0])):
        # The second text begins anew when it is over.
        places = [run, run % len(texts[1])]
        if places[1] == 0:
            caches[1] = KvCache(slots=9, sinks=2)
        tokens = [text[place] for text, place in zip(texts, places, strict=True)]
        host.take_both(tokens, places)
        for number, (token, cache) in enumerate(zip(tokens, caches, strict=True)):
            if number:
                host.start("scores", [])
            wanted = evaluate(decoder, [token], cache)["logits"][-1]
            assert np.array_equal(host.logits(), wanted)


@pytest.mark.parametrize(
    "options",
    [
        (
            *SMALL,
            "--quantize",
            "weights=int4",
            "--quantize",
            "group=8",
            "--quantize",
            "activations=mixed",
            "--quantize",
            "low-rank=2",
        ),
        ("--config", "story", "--context", "24", "--quantize", "kv=int4"),
        (
            "--config",
            "story",
            "--context",
            "24",
            "--quantize",
            "kv=recompute",
            "--quantize",
            "functions=wide",
        ),
        (*SMALL, "--set", "sparse_lanes=8", "--set", "sparse_depth=64"),
    ],
    ids=["mixed", "resident", "recompute", "sparse"],
)
def test_a_folder_says_what_its_model_says(celosia, tmp_path: Path, options) -> None:
    compiled(celosia, tmp_path / "out", "tales", *options)
    report, wanted = (
        said(celosia, *words, *PROMPT) for words in ((tmp_path / "out",), ("tales", *options))
    )
    own = {"seconds", "tensors"}
    assert {name: figure for name, figure in report.items() if name not in own} == {
        name: figure for name, figure in wanted.items() if name not in own
    }


def test_an_encoder_decoder_answers_from_a_folder(celosia, tmp_path: Path) -> None:
    compiled(celosia, tmp_path / "out", "numerals")
    assert said(celosia, tmp_path / "out", "--prompt", "XIV", "--json")["text"] == "14"


@pytest.mark.long  # test_several_products.py has such weights on the circuit
@pytest.mark.skipif(bool(missing_tools("verilator")), reason="Verilator is not installed")
def test_nested_weights_run_from_a_folder_on_the_circuit(celosia, tmp_path: Path) -> None:
    out = tmp_path / "out"
    compiled(celosia, out, "tales-nested", *SMALL, "--quantize", "weights=nested")
    code, output, errors = celosia(
        "run", out, "--quantize", "bits=8,4", "--prompt", "one day", *PROMPT[2:]
    )
    assert code == 0, errors
    report = json.loads(output)
    assert (report["mismatches"], report["bits"]) == (0, [8, 4])
    assert report["tensors"] > 100
    assert abs(report["predicted_cycles"] / report["cycles_per_token"] - 1) < 0.05


def test_a_folder_that_is_not_whole_is_refused(celosia, folder: Path, tmp_path: Path) -> None:
    compiled(celosia, folder, "tales", *SMALL)
    for name, content, message in (
        ("program.bin", b"", f"File {tmp_path / '0'}/program.bin must have "),
        ("model.json", b'{"kind": "decoder"}', f"Folder {tmp_path / '1'} is not as celosia comp"),
        ("setup_0.bin", None, f"Cannot read {tmp_path / '2'}/setup_0.bin: No such file"),
        ("vocab.json", b"{}", f"Characters {tmp_path / '3'}/vocab.json are not numbered"),
        ("config.toml", b"rows = 0", "Field rows"),
    ):
        place = tmp_path / str(len(list(tmp_path.iterdir())))
        shutil.copytree(folder, place)
        (place / name).unlink()
        if content is not None:
            (place / name).write_bytes(content)
        code, output, errors = celosia("run", place, "--sim", "golden", *PROMPT)
        assert (code, output) == (2, "")
        assert errors.startswith(f"celosia: {message}")
        assert errors.count("\n") == 1


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            ("--quantize", "weights=int4"),
            "Option --quantize weights is not for {folder}, which is compiled; give it",
        ),
        (("--config", "tiny"), "Option --config is not for {folder}, which is compiled"),
        (("--quantize", "bits=4"), "Bits 4 need weights nested, but they are in int8"),
    ],
)
def test_what_a_folder_has_answered_is_refused(celosia, folder: Path, words, message) -> None:
    if not folder.exists():
        compiled(celosia, folder, "tales", *SMALL)
    code, _, errors = celosia("run", folder, *words)
    assert code == 2
    assert message.format(folder=folder) in errors


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("tales", "--inputs", "x"), "Option --inputs is not for tales, which is a language model"),
        (("tales", "--batch", "2"), "Option --batch is not for tales, which is a language model"),
        (("digits", "--prompt", "a"), "Option --prompt is not for digits, which is an encoder"),
        (
            ("digits", "--quantize", "kv=int4"),
            "Option --quantize kv is not for digits, which is an encoder",
        ),
        (
            ("tales", "--quantize", "bits=8,4", "--quantize", "weights=nested"),
            "with one number of bits, not 2",
        ),
        (("digits", "--memory", "9"), "bytes of external memory, but the board has 9"),
        (("numerals", *["--prompt", "X"] * 2), "for decoders alone, and model numerals takes a so"),
        (("tales", "--memory", "9"), "pieces of 256 bytes, but external memory has 9"),
        (("digits", "--quantize", "bits=4"), "Bits 4 need weights nested, but they are in int8"),
    ],
)
def test_options_of_the_other_kind_are_refused(celosia, tmp_path: Path, words, message) -> None:
    code, _, errors = celosia("compile", *words, "--out", tmp_path / "out")
    assert code == 2
    assert message in errors
    assert not (tmp_path / "out").exists()
