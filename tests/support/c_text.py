"""The driver of language models in C, with models of a folder, on the golden machine or another."""

import ctypes
import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
from safetensors.numpy import save_file

from celosia.arch.presets import load
from celosia.generators.frontend.text_description import TextDescription
from celosia.generators.frontend.text_shapes import random_weights
from celosia.sim.interpreter import Interpreter
from tests.support.host_driver import GoldenPort, HostDriver, SimulatedPort

TOY = TextDescription(
    name="toy", vocabulary=11, positions=24, dim=8, layers=1, heads=2, ffn=12, head_dim=4,
    norm="layernorm", position="learned", gated=False, activation="relu", bias=True,
)  # fmt: skip
OK, ROWS = 0, 4
POLLS = 10_000
"""Times that the driver asks whether a run is over, which is many times as many as it takes."""


def export(
    celosia: Callable[..., tuple[int, str, str]], place: Path, model: TextDescription, *options: str
) -> Path:
    """Compile a model of random weights for ``tiny``, and return the folder with its files.

    The model itself is in the folder ``model`` beside it.
    """
    folder, out = place / "model", place / "out"
    folder.mkdir()
    (folder / "decoder.toml").write_text(model.to_toml())
    weights = random_weights(model)
    save_file(
        {name: w.astype(np.float32) for name, w in weights.items()}, folder / "weights.safetensors"
    )
    code, _, errors = celosia("compile", folder, "--config", "tiny", *options, "--out", out)
    assert code == 0, errors
    return out


class Text(ctypes.Structure):
    """The driver's ``celosia_text_t``."""

    _fields_ = (("length", ctypes.c_uint32), ("source", ctypes.c_uint32))


class Printed(ctypes.Structure):
    """The driver's ``celosia_printed_t``."""

    _fields_ = (
        ("begun", ctypes.c_uint32),
        ("held", ctypes.c_uint8 * 3),
        ("count", ctypes.c_uint32),
    )


class Texts(ctypes.Structure):
    """The driver's ``celosia_texts_t``."""

    _fields_ = (("lengths", ctypes.c_uint32 * 2), ("last", ctypes.c_uint32 * 2))


class CModel:
    """The driver with a model of a folder, on the golden machine where no port is given."""

    def __init__(self, folder: Path, name: str, port: SimulatedPort | None = None):
        self.known = json.loads((folder / "model.json").read_text())
        golden = GoldenPort(Interpreter(load(str(folder / "config.toml"))))
        self.driver = HostDriver(folder, port or golden)
        self.library = self.driver.library
        self.model = ctypes.byref(self.driver.symbol(f"{name}_model"))
        self.machine = ctypes.byref(self.driver.accelerator(self.known["memory_bytes"], POLLS))
        assert self.library.celosia_text_load(self.machine, self.model) == OK

    def choose(self) -> int:
        """Return the likeliest token."""
        token = ctypes.c_uint32()
        call = self.library.celosia_text_choose
        assert call(self.machine, self.model, ctypes.byref(token)) == OK
        return token.value

    def printed(self, tokens: list[int]) -> bytes:
        """Return the texts that tokens let the driver print, whole characters at a time."""
        printed, text = Printed(), b""
        for token in tokens:
            buffer = (ctypes.c_uint8 * 258)()
            call = self.library.celosia_text_print
            count = call(self.model, ctypes.byref(printed), token, buffer)
            text += bytes(buffer[:count])
            text.decode()
        return text

    def scores(self) -> list[int]:
        """Return the scores of all tokens."""
        logits = (ctypes.c_int16 * self.known["vocabulary"])()
        assert self.library.celosia_text_scores(self.machine, self.model, logits) == OK
        return list(logits)


class CHost(CModel):
    """A model of one text."""

    def __init__(self, folder: Path, name: str):
        super().__init__(folder, name)
        header = (folder / f"{name}_model.h").read_text().split()
        count, self.given = (
            int(header[header.index(f"{name.upper()}_SAMPLE_{count_name}") + 1])
            for count_name in ("TOKENS", "GIVEN")
        )
        self.sample = list((ctypes.c_uint32 * count).in_dll(self.library, f"{name}_sample_tokens"))
        self.text = Text(0, 0)

    def give(self, function: str, tokens: list[int]) -> int:
        """Give tokens to a function of the driver."""
        values = (ctypes.c_uint32 * max(1, len(tokens)))(*tokens)
        called = getattr(self.library, function)
        text = ctypes.byref(self.text)
        return called(self.machine, self.model, text, values, len(tokens))

    def go_on(self, steps: int) -> list[int]:
        """Return the likeliest tokens, one behind the other."""
        likeliest = []
        for _ in range(steps):
            likeliest.append(self.choose())
            assert self.give("celosia_text_take", likeliest[-1:]) == OK
        return likeliest


class CTexts(CModel):
    """A model of two texts."""

    def __init__(self, folder: Path, name: str, port: SimulatedPort | None = None):
        super().__init__(folder, name, port)
        counts, self.given = (
            list((ctypes.c_uint32 * 2).in_dll(self.library, f"{name}_sample_{array_name}"))
            for array_name in ("counts", "given")
        )
        both = (ctypes.POINTER(ctypes.c_uint32) * 2).in_dll(self.library, f"{name}_sample_tokens")
        self.samples = [tokens[:count] for tokens, count in zip(both, counts, strict=True)]
        self.texts = Texts()

    def take(self, *tokens: int | None) -> int:
        """Take a token of each text; None for one that rests."""
        pointers = [
            None if token is None else ctypes.byref(ctypes.c_uint32(token)) for token in tokens
        ]
        call = self.library.celosia_texts_take
        return call(self.machine, self.model, ctypes.byref(self.texts), *pointers)

    def second(self) -> None:
        """Compute the scores of the token that follows the second text."""
        assert self.library.celosia_texts_second(self.machine, self.model) == OK

    def go_on(self, late: tuple[int, int]) -> list[list[int]]:
        """Return what both prompts become, each as long as its sample; one may begin runs later.

        The second text's scores are made only where a token is chosen from them.
        """
        texts = [sample[:start] for sample, start in zip(self.samples, self.given, strict=True)]
        self.texts, run = Texts(), 0
        while True:
            lengths = list(self.texts.lengths)
            tokens = [
                texts[text][lengths[text]]
                if run >= late[text] and len(texts[text]) < len(self.samples[text])
                else None
                for text in (0, 1)
            ]
            if run >= max(late) and tokens == [None, None]:
                return texts
            assert self.take(*tokens) == OK
            for text in (0, 1):
                if tokens[text] is not None and lengths[text] + 1 == len(texts[text]):
                    if text:
                        self.second()
                    texts[text].append(self.choose())
            run += 1
