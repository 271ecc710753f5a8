"""Record transformers' outputs for edited folders of every family: tests/data/edits.

Usage: python -m tools.reference_edits [--only WORD] [--new]

Needs the extra ``zoo``. ``bases.json`` has the settings and the tensors' shapes of a small model of
each family. ``outputs.json`` has the last row of transformers' output for each edit, or null if it
refuses the folder. ``--only`` records the families whose names hold a word, ``--new`` the edits
that have not been recorded.
"""

import argparse
import json
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import transformers
from safetensors.numpy import load_file

from celosia.arch.errors import InputError
from celosia.generators.reference.outside import folder_reference
from tools import folder_edits as edits

_DECODER = {
    "hidden_size": 32,
    "intermediate_size": 24,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 13,
    "max_position_embeddings": 24,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "pad_token_id": 0,
}
_ENCODER = {
    "hidden_size": 24,
    "intermediate_size": 20,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "vocab_size": 13,
    "max_position_embeddings": 24,
}
_IMAGE = {"hidden_size": 24, "intermediate_size": 20, "num_hidden_layers": 2,
          "num_attention_heads": 4, "image_size": 6, "patch_size": 3}  # fmt: skip
_LABELS = {"id2label": {"0": "a", "1": "b", "2": "c"}, "label2id": {"a": 0, "b": 1, "c": 2}}
_PAIR = {
    "d_model": 24,
    "encoder_layers": 1,
    "decoder_layers": 2,
    "encoder_attention_heads": 3,
    "decoder_attention_heads": 3,
    "encoder_ffn_dim": 20,
    "decoder_ffn_dim": 20,
    "vocab_size": 13,
    "max_position_embeddings": 24,
    "decoder_start_token_id": 1,
}
_BASES: dict[str, dict[str, Any]] = {
    "LlamaForCausalLM": {**_DECODER, "head_dim": 8},
    "MistralForCausalLM": {**_DECODER, "head_dim": 8, "sliding_window": 20},
    "Qwen2ForCausalLM": _DECODER,
    "Qwen3ForCausalLM": {**_DECODER, "head_dim": 12},
    "GemmaForCausalLM": {**_DECODER, "head_dim": 8},
    "Phi3ForCausalLM": {**_DECODER, "original_max_position_embeddings": 24},
    "GraniteForCausalLM": {
        **_DECODER,
        "embedding_multiplier": 3.0,
        "attention_multiplier": 0.2,
        "residual_multiplier": 0.6,
        "logits_scaling": 2.0,
    },
    "SmolLM3ForCausalLM": {**_DECODER, "num_hidden_layers": 3},
    "OlmoForCausalLM": _DECODER,
    "StableLmForCausalLM": {**_DECODER, "use_qkv_bias": True},
    "Starcoder2ForCausalLM": _DECODER,
    "GPTNeoXForCausalLM": {
        **{name: value for name, value in _DECODER.items() if "key" not in name},
        "use_parallel_residual": False,
    },
    "GPT2LMHeadModel": {
        "n_embd": 24, "n_layer": 2, "n_head": 3, "vocab_size": 13, "n_positions": 24,
        "bos_token_id": 1, "eos_token_id": 2,
    },
    "GPTNeoForCausalLM": {
        "hidden_size": 24, "num_layers": 2, "num_heads": 3, "vocab_size": 13,
        "max_position_embeddings": 24, "window_size": 12, "bos_token_id": 1, "eos_token_id": 2,
        "attention_types": [[["global", "local"], 1]],
    },
    "OPTForCausalLM": {
        "hidden_size": 24, "num_hidden_layers": 2, "num_attention_heads": 3, "ffn_dim": 20,
        "vocab_size": 13, "max_position_embeddings": 24, "word_embed_proj_dim": 24,
    },
    "BlenderbotForConditionalGeneration": _PAIR,
    "PegasusForConditionalGeneration": {**_PAIR, "scale_embedding": True},
    "BertForMaskedLM": _ENCODER,
    "BertForSequenceClassification": {**_ENCODER, **_LABELS},
    "BertLMHeadModel": _ENCODER,
    "RobertaForMaskedLM": _ENCODER,
    "XLMRobertaForTokenClassification": {**_ENCODER, **_LABELS},
    "CamembertForQuestionAnswering": _ENCODER,
    "DistilBertForMaskedLM": {
        "dim": 24, "hidden_dim": 20, "n_layers": 2, "n_heads": 4, "vocab_size": 13,
        "max_position_embeddings": 24,
    },
    "ElectraForSequenceClassification": {**_ENCODER, **_LABELS, "embedding_size": 16},
    "ElectraForMaskedLM": {**_ENCODER, "embedding_size": 16},
    "ElectraForPreTraining": {**_ENCODER, "embedding_size": 16},
    "AlbertForMaskedLM": {**_ENCODER, "embedding_size": 16},
    "AlbertForPreTraining": {**_ENCODER, "embedding_size": 16},
    "ViTForImageClassification": {**_IMAGE, **_LABELS},
    "DeiTForImageClassificationWithTeacher": {**_IMAGE, **_LABELS},
    "Dinov2ForImageClassification": {
        **{name: value for name, value in _IMAGE.items() if name != "intermediate_size"},
        **_LABELS,
        "mlp_ratio": 2,
    },
    "CLIPVisionModelWithProjection": {**_IMAGE, "projection_dim": 16},
    "ASTForAudioClassification": {
        "hidden_size": 24, "intermediate_size": 20, "num_hidden_layers": 2,
        "num_attention_heads": 4, "patch_size": 3, "max_length": 11, "num_mel_bins": 7,
        "frequency_stride": 2, "time_stride": 3, **_LABELS,
    },
}  # fmt: skip


def base(name: str, settings: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Return the settings and tensor shapes that transformers saves for a random model."""
    kind = getattr(transformers, name)
    model = kind(kind.config_class(**settings))
    model.save_pretrained(folder)
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    tensors = load_file(folder / "model.safetensors")
    return {
        "config": config,
        "shapes": {name: list(tensors[name].shape) for name in sorted(tensors)},
    }


def outputs(
    name: str, made: dict[str, Any], folder: Path, known: dict[str, Any]
) -> Iterator[tuple[str, list[float] | None]]:
    """Yield each edit's name and last row, None if transformers refuses it."""
    inputs = edits.inputs_of(made["config"])
    for place, (edit, config, tensors) in enumerate(edits.edits(made["config"], made["shapes"])):
        if edit in known:
            yield edit, known[edit]
            continue
        path = folder / f"{name}-{place}"
        edits.write(path, config, tensors)
        try:
            last = folder_reference(path)(*inputs)[-1]
            yield edit, [float(f"{number:.7g}") for number in last]
        except InputError:
            yield edit, None


def main() -> None:
    """Write the files."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--only", default="")
    parser.add_argument("--new", action="store_true")
    arguments = parser.parse_args()
    kept = {"bases": {}, "outputs": {}}
    for part in kept:
        path = edits.DATA / f"{part}.json"
        if (arguments.only or arguments.new) and path.is_file():
            kept[part] = json.loads(path.read_text(encoding="utf-8"))
    chosen = {
        name: chosen_settings
        for name, chosen_settings in _BASES.items()
        if arguments.only.lower() in name.lower()
    }
    for place, (name, settings) in enumerate(chosen.items()):
        with tempfile.TemporaryDirectory() as folder:
            made = kept["bases"][name] = base(name, settings, Path(folder))
            known = kept["outputs"].get(name, {}) if arguments.new else {}
            rows = kept["outputs"][name] = dict(outputs(name, made, Path(folder), known))
        accepted = sum(value is not None for value in rows.values())
        print(f"{place + 1} of {len(chosen)}: {name}, {len(rows)} edits, {accepted} accepted",
              file=sys.stderr, flush=True)  # fmt: skip
        for part, values in kept.items():
            lines = [f" {json.dumps(key)}: {json.dumps(values[key])}" for key in sorted(values)]
            content = "{\n" + ",\n".join(lines) + "\n}\n"
            (edits.DATA / f"{part}.json").write_text(content, encoding="utf-8")


if __name__ == "__main__":
    main()
