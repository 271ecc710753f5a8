"""Small folders with every kind of tokenizer, as transformers saves them."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save_file

from celosia.arch.packages import library

_DATA = Path(__file__).parents[1] / "data" / "door"
TEXTS: list[str] = json.loads((_DATA / "texts.json").read_text(encoding="utf-8"))
"""Sixty texts, none with a line's end or a tab."""
_VOCABULARIES = json.loads((_DATA / "vocabularies.json").read_text(encoding="utf-8"))
"""Vocabularies, as the trainers of the package tokenizers made them of a few lines."""
DIM, HEADS, FFN, PLACES = 8, 2, 12, 130


def word_piece(lower: bool, special: list[str]) -> dict[str, int]:
    """Return a vocabulary of WordPiece."""
    words = [*special, *_VOCABULARIES["word_piece"]["lower" if lower else "cased"]]
    return {word: number for number, word in enumerate(words)}


def pairs(special: list[str], *, fallback: bool = False) -> dict[str, Any]:
    """Return a vocabulary and merges of BPE, of bytes as characters or with bytes to fall back."""
    vocabulary = _VOCABULARIES["fallback" if fallback else "byte_level"]
    alone = [f"<0x{byte:02X}>" for byte in range(256)] if fallback else []
    words = [*special, *alone, *vocabulary["vocab"]]
    return {
        "vocab": {word: number for number, word in enumerate(words)},
        "merges": [tuple(merge) for merge in vocabulary["merges"]],
    }


def unigrams(special: list[str]) -> list[tuple[str, float]]:
    """Return a vocabulary of SentencePiece's unigrams."""
    return [*((piece, 0.0) for piece in special), *map(tuple, _VOCABULARIES["unigrams"])]


BERT = ["[UNK]", "[PAD]", "[CLS]", "[SEP]", "[MASK]"]
ROBERTA = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]


@dataclass(frozen=True)
class Kind:
    """A kind of tokenizer, and the special content of its folder's tokenizer_config.json."""

    name: str
    model: str
    make: Callable[[Any], Any]
    """The tokenizer, by the package transformers."""
    changed: Mapping[str, Any] = field(default_factory=dict)


ENCODERS = [
    Kind("bert", "bert", lambda t: t.BertTokenizer(vocab=word_piece(True, BERT))),
    Kind(
        "bert cased",
        "bert",
        lambda t: t.BertTokenizer(vocab=word_piece(False, BERT), do_lower_case=False),
    ),
    Kind(
        "bert lower in its configuration alone",
        "bert",
        lambda t: t.BertTokenizer(vocab=word_piece(True, BERT), do_lower_case=False),
        {"do_lower_case": True, "strip_accents": False},
    ),
    Kind(
        "bert of whole Chinese words, cut at the left",
        "bert",
        lambda t: t.BertTokenizer(vocab=word_piece(True, BERT)),
        {"tokenize_chinese_chars": False, "truncation_side": "left", "model_max_length": 14},
    ),
    Kind(
        "electra that splits marks",
        "electra",
        lambda t: t.BertTokenizer(vocab=word_piece(True, BERT)),
        {"split_special_tokens": True, "strip_accents": True},
    ),
    Kind("roberta", "roberta", lambda t: t.RobertaTokenizer(**pairs(ROBERTA))),
    Kind(
        "roberta with a space before",
        "roberta",
        lambda t: t.RobertaTokenizer(**pairs(ROBERTA)),
        {"add_prefix_space": True},
    ),
    Kind(
        "albert",
        "bert",
        lambda t: t.AlbertTokenizer(vocab=unigrams(["<pad>", "<unk>", "[CLS]", "[SEP]", "[MASK]"])),
    ),
    Kind(
        "xlm-roberta",
        "xlm-roberta",
        lambda t: t.XLMRobertaTokenizer(
            vocab=unigrams(["<s>", "<pad>", "</s>", "<unk>", "<mask>"])
        ),
    ),
    Kind(
        "camembert",
        "camembert",
        lambda t: t.CamembertTokenizer(vocab=unigrams(["<s>", "<pad>", "</s>", "<unk>", "<mask>"])),
    ),
]
DECODERS = [
    Kind("gpt2", "llama", lambda t: t.GPT2Tokenizer(**pairs(["<|endoftext|>"]))),
    Kind(
        "gpt2 with a space before",
        "llama",
        lambda t: t.GPT2Tokenizer(**pairs(["<|endoftext|>"])),
        {"add_prefix_space": True},
    ),
    Kind("qwen2", "qwen2", lambda t: t.Qwen2Tokenizer(**pairs(["<|endoftext|>", "<|im_start|>"]))),
    Kind(
        "gpt_neox", "llama", lambda t: t.GPTNeoXTokenizer(**pairs(["<|endoftext|>", "<|padding|>"]))
    ),
    Kind(
        "llama",
        "llama",
        lambda t: t.LlamaTokenizer(
            **pairs(["<unk>", "<s>", "</s>"], fallback=True), add_bos_token=True
        ),
    ),
    Kind(
        "llama without a first token",
        "llama",
        lambda t: t.LlamaTokenizer(
            **pairs(["<unk>", "<s>", "</s>"], fallback=True), add_bos_token=False
        ),
    ),
    Kind(
        "llama with a last token",
        "llama",
        lambda t: t.LlamaTokenizer(
            **pairs(["<unk>", "<s>", "</s>"], fallback=True), add_bos_token=True, add_eos_token=True
        ),
    ),
    Kind(
        "gemma",
        "llama",
        lambda t: t.GemmaTokenizer(
            **pairs(["<pad>", "<eos>", "<bos>", "<unk>", "<mask>"], fallback=True)
        ),
    ),
    Kind(
        "opt",
        "llama",
        lambda t: t.GPT2Tokenizer(
            **pairs(["</s>", "<pad>"]),
            bos_token="</s>",
            eos_token="</s>",
            unk_token="</s>",
            add_bos_token=True,
        ),
    ),
    Kind(
        "unigrams",
        "llama",
        lambda t: t.T5Tokenizer(vocab=unigrams(["<pad>", "</s>", "<unk>"]), extra_ids=0),
        {"clean_up_tokenization_spaces": True},
    ),
]


def tokenizer_folder(kind: Kind, folder: Path) -> dict[str, int | None]:
    """Write a tokenizer's files; return how many tokens it has, and the marks of a text."""
    package = library("transformers", "Tests need", "transformers")
    made = kind.make(package)
    made.save_pretrained(str(folder))
    path = folder / "tokenizer_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | kind.changed))
    return {
        "vocab_size": max(len(made), 1 + max(made.get_vocab().values())),
        "bos_token_id": made.bos_token_id,
        "eos_token_id": made.eos_token_id,
    }


def encoder_folder(kind: Kind, folder: Path, **settings: Any) -> None:
    """Write an encoder of random weights with a tokenizer."""
    folder.mkdir(exist_ok=True)
    known = tokenizer_folder(kind, folder)
    vocabulary = known["vocab_size"]
    config = {
        "model_type": kind.model,
        "hidden_act": "gelu",
        "hidden_size": DIM,
        **({"embedding_size": DIM} if kind.model == "electra" else {}),
        "intermediate_size": FFN,
        "num_attention_heads": HEADS,
        "num_hidden_layers": 1,
        **known,
        "max_position_embeddings": PLACES,
        "type_vocab_size": 2,
        "layer_norm_eps": 1e-12,
        "pad_token_id": 1,
        **settings,
    }
    (folder / "config.json").write_text(json.dumps(config))
    shapes: dict[str, tuple[int, ...]] = {
        "embeddings.word_embeddings.weight": (vocabulary, DIM),
        "embeddings.position_embeddings.weight": (config["max_position_embeddings"], DIM),
        "embeddings.token_type_embeddings.weight": (2, DIM),
    }
    layer = {f"attention.self.{name}": (DIM, DIM) for name in ("query", "key", "value")}
    layer |= {"attention.output.dense": (DIM, DIM)}
    layer |= {"intermediate.dense": (FFN, DIM), "output.dense": (DIM, FFN)}
    for name, shape in layer.items():
        shapes[f"encoder.layer.0.{name}.weight"] = shape
        shapes[f"encoder.layer.0.{name}.bias"] = shape[:1]
    for name in ("embeddings", "encoder.layer.0.attention.output", "encoder.layer.0.output"):
        shapes |= {f"{name}.LayerNorm.{part}": (DIM,) for part in ("weight", "bias")}
    rng = np.random.default_rng(1)
    save_file(
        {name: rng.normal(0, 0.5, shape).astype(np.float32) for name, shape in shapes.items()},
        folder / "model.safetensors",
    )


def decoder_folder(kind: Kind, folder: Path, **settings: Any) -> None:
    """Write a decoder of random weights with a tokenizer."""
    folder.mkdir(exist_ok=True)
    known = tokenizer_folder(kind, folder)
    vocabulary = known["vocab_size"]
    config = {
        "model_type": kind.model,
        "hidden_size": DIM,
        "num_hidden_layers": 1,
        "num_attention_heads": HEADS,
        "num_key_value_heads": HEADS,
        "intermediate_size": FFN,
        **known,
        "max_position_embeddings": PLACES,
        "rms_norm_eps": 1e-6,
        "hidden_act": "silu",
        "rope_theta": 10000.0,
        "tie_word_embeddings": False,
        **settings,
    }
    (folder / "config.json").write_text(json.dumps(config))
    shapes: dict[str, tuple[int, ...]] = {
        "model.embed_tokens.weight": (vocabulary, DIM),
        "model.norm.weight": (DIM,),
        "lm_head.weight": (vocabulary, DIM),
    }
    layer = "model.layers.0."
    for name in "qk" if kind.model == "qwen3" else "":
        shapes[f"{layer}self_attn.{name}_norm.weight"] = (DIM // HEADS,)
    for name in "qkvo":
        shapes[f"{layer}self_attn.{name}_proj.weight"] = (DIM, DIM)
        if kind.model == "qwen2" and name != "o":
            shapes[f"{layer}self_attn.{name}_proj.bias"] = (DIM,)
    for name in ("gate", "up"):
        shapes[f"{layer}mlp.{name}_proj.weight"] = (FFN, DIM)
    shapes[f"{layer}mlp.down_proj.weight"] = (DIM, FFN)
    shapes |= {f"{layer}{n}_layernorm.weight": (DIM,) for n in ("input", "post_attention")}
    rng = np.random.default_rng(2)
    save_file(
        {name: rng.normal(0, 1, shape).astype(np.float32) for name, shape in shapes.items()},
        folder / "model.safetensors",
    )


def reciter_folder(kind: Kind, folder: Path, tokens: Sequence[int]) -> None:
    """Write a decoder like GPT-2 that follows any text of n tokens by ``tokens[n:]``.

    The vector of each position is the row of the head for the next token; blocks and embeddings
    are close to zero.
    """
    folder.mkdir(exist_ok=True)
    rng, width = np.random.default_rng(3), 32
    words = tokenizer_folder(kind, folder)["vocab_size"]
    config = {
        "model_type": "gpt2", "n_embd": width, "n_layer": 1, "n_head": 1, "n_inner": width,
        "n_positions": len(tokens), "vocab_size": words, "tie_word_embeddings": False,
    }  # fmt: skip
    (folder / "config.json").write_text(json.dumps(config))
    sizes = {"attn.c_attn": 3 * width, "attn.c_proj": width, "mlp.c_fc": width}
    sizes |= {"mlp.c_proj": width}
    layer = "transformer.h.0."
    weights = {f"{layer}{n}.weight": rng.normal(0, 1e-3, (width, s)) for n, s in sizes.items()}
    weights |= {f"{layer}{name}.bias": np.zeros(size) for name, size in sizes.items()}
    for norm in (f"{layer}ln_1", f"{layer}ln_2", "transformer.ln_f"):
        weights |= {f"{norm}.weight": np.ones(width), f"{norm}.bias": np.zeros(width)}
    codes = rng.permuted(np.tile(np.repeat([1.0, -1.0], width // 2), (words, 1)), axis=1)
    weights["transformer.wte.weight"] = rng.normal(0, 1e-3, (words, width))
    weights["transformer.wpe.weight"] = codes[[*tokens[1:], 0]]
    weights["lm_head.weight"] = codes
    save_file(
        {name: values.astype(np.float32) for name, values in weights.items()},
        folder / "model.safetensors",
    )


def reference(folder: Path) -> Any:
    """Return the tokenizer of a folder as transformers alone reads it."""
    package = library("transformers", "Tests need", "transformers")
    return package.AutoTokenizer.from_pretrained(
        str(folder), local_files_only=True, trust_remote_code=False
    )
