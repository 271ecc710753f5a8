"""The models of examples/zoo.py: PyTorch's and transformers' with random weights."""

from collections.abc import Callable, Iterator
from typing import Any

import torch
import transformers
from torch import Tensor, nn
from zoo_files import Made
from zoo_modules import (
    CLASSES,
    DIM,
    TOKENS,
    Causal,
    Cut,
    Gated,
    Largest,
    Mean,
    Own,
    Padded,
    RmsNorm,
    Rolled,
    Waves,
    classifier,
    encoder,
    linear,
    plain,
)

transformers.logging.set_verbosity_error()
transformers.utils.logging.disable_progress_bar()
TEXT = {
    "vocab_size": 50,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 48,
    "max_position_embeddings": 20,
}
NO_WIDTH = {name: value for name, value in TEXT.items() if name != "intermediate_size"}
"""Settings of classes that have another name for the width of a hidden layer."""
IMAGE = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 48,
    "image_size": 8,
    "patch_size": 4,
}
DECODER = {**TEXT, "max_position_embeddings": 32, "num_key_value_heads": 2}


def folders() -> Iterator[Made]:
    """Yield transformers' models as folders."""
    three = {"num_labels": CLASSES}
    lists: list[tuple[str, dict[str, Any]]] = [
        ("BertForSequenceClassification", {**TEXT, **three}),
        ("BertForTokenClassification", {**TEXT, **three}),
        ("BertForQuestionAnswering", TEXT),
        ("BertForMaskedLM", TEXT),
        ("BertModel", TEXT),
        ("RobertaForSequenceClassification", {**TEXT, **three}),
        ("XLMRobertaModel", TEXT),
        (
            "DistilBertForSequenceClassification",
            {"vocab_size": 50, "dim": 32, "n_layers": 2, "n_heads": 4, "hidden_dim": 48,
             "max_position_embeddings": 20, **three},
        ),
        ("ElectraForSequenceClassification", {**TEXT, "embedding_size": 16, **three}),
        ("AlbertForSequenceClassification", {**TEXT, "embedding_size": 16, **three}),
        ("ViTForImageClassification", {**IMAGE, **three}),
        ("ViTModel", IMAGE),
        ("DeiTForImageClassification", {**IMAGE, **three}),
        ("DeiTForImageClassificationWithTeacher", {**IMAGE, **three}),
        ("Dinov2ForImageClassification", {**IMAGE, "mlp_ratio": 2, **three}),
        ("CLIPVisionModelWithProjection", {**IMAGE, "projection_dim": 16}),
        (
            "ASTForAudioClassification",
            {**IMAGE, "max_length": 16, "num_mel_bins": 8, "frequency_stride": 4,
             "time_stride": 4, **three},
        ),
        (
            "GPT2LMHeadModel",
            {"vocab_size": 50, "n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 32},
        ),
        ("LlamaForCausalLM", {**DECODER, "tie_word_embeddings": True}),
        ("LlamaForCausalLM", {**DECODER, "rope_parameters": {
            "rope_type": "llama3", "rope_theta": 5e5, "factor": 8.0, "low_freq_factor": 1.0,
            "high_freq_factor": 4.0, "original_max_position_embeddings": 16}}),
        ("LlamaForCausalLM", {**DECODER, "rope_parameters": {
            "rope_type": "yarn", "rope_theta": 1e4, "factor": 4.0,
            "original_max_position_embeddings": 16}}),
        ("MistralForCausalLM", {**DECODER, "sliding_window": 16}),
        ("Qwen2ForCausalLM", DECODER),
        ("Qwen3ForCausalLM", {**DECODER, "head_dim": 8}),
        ("GemmaForCausalLM", {**DECODER, "head_dim": 8}),
        ("Phi3ForCausalLM",
         {**DECODER, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}),
        ("GraniteForCausalLM",
         {**DECODER, "embedding_multiplier": 2.0, "residual_multiplier": 0.5,
          "attention_multiplier": 0.2, "logits_scaling": 2.0}),
        ("SmolLM3ForCausalLM", {**DECODER, "pad_token_id": 0}),
        ("StableLmForCausalLM", {**DECODER, "use_qkv_bias": True}),
        ("Starcoder2ForCausalLM", DECODER),
        ("OlmoForCausalLM", DECODER),
        ("OPTForCausalLM", {**NO_WIDTH, "ffn_dim": 48, "word_embed_proj_dim": 32}),
        ("GPTNeoXForCausalLM", {**TEXT, "use_parallel_residual": False, "rotary_pct": 0.5}),
        ("GPTNeoForCausalLM",
         {"vocab_size": 50, "hidden_size": 32, "num_layers": 2, "num_heads": 4,
          "attention_types": [[["global", "local"], 1]], "window_size": 16,
          "max_position_embeddings": 32}),
        ("PhiForCausalLM", DECODER),
    ]  # fmt: skip
    for number, (name, settings) in enumerate(lists):
        rope = settings.get("rope_parameters", {}).get("rope_type", "")

        def make(name: str = name, settings: dict[str, Any] = settings) -> nn.Module:
            kind = getattr(transformers, name)
            return kind(kind.config_class(**settings))

        yield Made(f"{number:02} {name} {rope}".strip(), "folder", make)


def graphs() -> Iterator[Made]:
    """Yield models for both exporters."""
    ids = torch.arange(4, 4 + 9)[None]
    ones, zeros = torch.ones_like(ids), torch.zeros_like(ids)
    rows, image = torch.randn(1, TOKENS, DIM), torch.randn(1, 3, 4, 6)
    numbers = torch.arange(1, TOKENS + 1)[None]

    def hugging(name: str, settings: dict[str, Any]) -> Callable[[], nn.Module]:
        kind = getattr(transformers, name)
        return lambda: kind(kind.config_class(**settings))

    three = {"num_labels": CLASSES}
    inputs = ("input_ids", "attention_mask", "token_type_ids")
    bert = hugging("BertForSequenceClassification", {**TEXT, **three})
    distil = hugging(
        "DistilBertForSequenceClassification",
        {"vocab_size": 50, "dim": 32, "n_layers": 2, "n_heads": 4, "hidden_dim": 48, **three},
    )
    vit = hugging("ViTForImageClassification", {**IMAGE, **three})
    gpt2 = hugging(
        "GPT2LMHeadModel",
        {"vocab_size": 50, "n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 32,
         "use_cache": False},
    )  # fmt: skip
    both: list[tuple[str, Callable[[], nn.Module], tuple[Tensor, ...], tuple[str, ...]]] = [
        ("BERT with mask and types", bert, (ids, ones, zeros), inputs),
        ("DistilBERT with mask", distil, (ids, ones), inputs[:2]),
        ("ViT", vit, (torch.randn(1, 3, 8, 8),), ("pixel_values",)),
        ("TransformerEncoder", encoder, (rows,), ("x",)),
        ("TransformerEncoder, norm first", lambda: encoder(norm_first=True), (rows,), ("x",)),
        ("padding mask of tokens", Padded, (numbers,), ("x",)),
        ("reshaped patches, MLP head",
         lambda: Own(Cut(), nn.Sequential(Mean(), linear(), nn.Tanh(), nn.Linear(DIM, CLASSES))),
         (image,), ("x",)),
        ("causal, as nanoGPT", Causal, (numbers,), ("x",)),
    ]  # fmt: skip
    for name, make, arrays, names in both:
        for road in ("older", "newer"):
            yield Made(name, road, make, arrays, names)
    once: list[tuple[str, Callable[[], nn.Module], Tensor, str]] = [
        ("convolution of a sound, LeakyReLU",
         lambda: Own(Rolled(nn.Conv1d(2, DIM, 4, 4)), classifier(), activation=nn.LeakyReLU()),
         torch.randn(1, 2, 24), "newer"),
        ("convolution of an image, softmax",
         lambda: Own(Rolled(nn.Conv2d(3, DIM, 2, 2)), nn.Sequential(classifier(), nn.Softmax(-1))),
         image, "older"),
        ("RMSNorm, ReLU6",
         lambda: Own(linear(), classifier(), norm=RmsNorm, activation=nn.ReLU6()), rows, "newer"),
        ("Einsum, hard swish",
         lambda: Own(linear(), classifier(), einsum=True, activation=nn.Hardswish()), rows,
         "older"),
        ("scaled words, sines, tanh", lambda: Own(Waves(), classifier(), activation=nn.Tanh()),
         numbers, "newer"),
        ("max pooling", lambda: Own(linear(), nn.Sequential(Largest(), nn.Linear(DIM, CLASSES))),
         rows, "newer"),
        ("flattened rows",
         lambda: Own(linear(), nn.Sequential(nn.Flatten(), nn.Linear(TOKENS * DIM, CLASSES))),
         rows, "older"),
        ("batch behind tokens", lambda: encoder(batch_first=False), torch.randn(TOKENS, 1, DIM),
         "older"),
        ("fixed batch of 4", plain, torch.randn(4, TOKENS, DIM),
         "newer"),
        ("gated MLP", Gated, rows, "newer"),
    ]  # fmt: skip
    for name, make, tensor, road in once:
        yield Made(name, road, make, (tensor,))
    yield Made("LayerNorm of opset 14", "older", plain, (rows,), opset=14)
    yield Made("GPT-2", "newer", gpt2, (ids,), ("input_ids",))


SMALL = {
    "hidden_size": 8,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "intermediate_size": 12,
}


def samples() -> Iterator[Made]:
    """Yield models of a few kilobytes, for tests that need no PyTorch."""
    text = {**TEXT, **SMALL, "vocab_size": 12, "max_position_embeddings": 7}
    image = {**IMAGE, **SMALL, "num_channels": 1}
    llama = {**text, "num_key_value_heads": 1, "rope_parameters": {
        "rope_type": "llama3", "rope_theta": 1e4, "factor": 4.0, "low_freq_factor": 1.0,
        "high_freq_factor": 4.0, "original_max_position_embeddings": 8}}  # fmt: skip
    three = {"num_labels": CLASSES}
    ids = torch.tensor([[3, 9, 4, 11, 5, 1, 8]])
    ones, zeros = torch.ones_like(ids), torch.zeros_like(ids)
    pixels = torch.randn(1, 1, 8, 8, generator=torch.Generator().manual_seed(1))
    for name, settings, sample in (
        ("BertForSequenceClassification", {**text, **three}, ids),
        ("ViTForImageClassification", {**image, **three}, pixels),
        ("LlamaForCausalLM", llama, ids),
    ):
        kind = getattr(transformers, name)

        def make(kind: Any = kind, settings: dict[str, Any] = settings) -> nn.Module:
            return kind(kind.config_class(**settings))

        yield Made(f"0 {name}", "folder", make, (sample,))
        if name.startswith("Bert"):
            names = ("input_ids", "attention_mask", "token_type_ids")
            yield Made("bert", "newer", make, (ids, ones, zeros), names)
            yield Made("bert", "older", make, (ids, ones, zeros), names)
        elif name.startswith("ViT"):
            yield Made("vit", "older", make, (pixels,), ("pixel_values",))
