"""The models of examples/zoo.py: PyTorch's and transformers' with random weights."""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import transformers
from torch import Tensor, nn

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
IMAGE = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 48,
    "image_size": 8,
    "patch_size": 4,
}
DECODER = {**TEXT, "max_position_embeddings": 32, "num_key_value_heads": 2}
DIM, TOKENS, CLASSES = 24, 6, 3


@dataclass(frozen=True)
class Made:
    """A model to export: how, and on which inputs."""

    name: str
    road: str
    """``folder``, or ``older`` or ``newer`` of PyTorch's exporters of ONNX."""
    make: Callable[[], nn.Module]
    inputs: tuple[Tensor, ...] = ()
    names: tuple[str, ...] = ("x",)
    opset: int = 17


class Named(nn.Module):
    """A transformers model whose inputs have an order, and which gives its first output."""

    def __init__(self, model: nn.Module, names: tuple[str, ...]):
        super().__init__()
        self.model, self.names = model, names

    def forward(self, *inputs: Tensor) -> Tensor:
        """Return the first output."""
        return self.model(**dict(zip(self.names, inputs, strict=True)))[0]


class RmsNorm(nn.Module):
    """A norm without means, written out."""

    def __init__(self, dim: int):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(dim))

    def forward(self, x: Tensor) -> Tensor:
        """Return rows of the same mean square."""
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-5) * self.weight


class Block(nn.Module):
    """A pre-norm block."""

    def __init__(self, activation: nn.Module, norm: Callable[[int], nn.Module], einsum: bool):
        super().__init__()
        self.activation, self.einsum = activation, einsum
        self.first_norm, self.second_norm = norm(DIM), norm(DIM)
        self.together, self.output = nn.Linear(DIM, 3 * DIM), nn.Linear(DIM, DIM)
        self.up, self.down = nn.Linear(DIM, 40), nn.Linear(40, DIM)

    def forward(self, x: Tensor, added: Tensor | None = None) -> Tensor:
        """Return the block's output; ``added`` is added to scores."""
        q, k, v = self.together(self.first_norm(x)).chunk(3, dim=-1)
        q, k, v = (part.unflatten(-1, (4, -1)) for part in (q, k, v))
        if self.einsum:
            scores = torch.einsum("bihd,bjhd->bhij", q, k) * q.shape[-1] ** -0.5
        else:
            scores = q.transpose(1, 2) @ k.permute(0, 2, 3, 1) / math.sqrt(q.shape[-1])
        shares = (scores if added is None else scores + added).softmax(-1)
        if self.einsum:
            context = torch.einsum("bhij,bjhd->bihd", shares, v)
        else:
            context = (shares @ v.transpose(1, 2)).transpose(1, 2)
        x = x + self.output(context.flatten(2))
        return x + self.down(self.activation(self.up(self.second_norm(x))))


class Own(nn.Module):
    """An encoder of one's own: an embedding, blocks, and a head."""

    def __init__(
        self,
        embed: nn.Module,
        head: nn.Module,
        *,
        activation: nn.Module | None = None,
        norm: Callable[[int], nn.Module] = nn.LayerNorm,
        einsum: bool = False,
        places: int = TOKENS,
    ):
        super().__init__()
        self.embed, self.head = embed, head
        self.places = nn.Parameter(torch.zeros(1, places, DIM))
        activation = activation or nn.GELU()
        self.blocks = nn.Sequential(*(Block(activation, norm, einsum) for _ in range(2)))
        self.norm = norm(DIM)

    def forward(self, x: Tensor) -> Tensor:
        """Return what the head makes of the normalized rows."""
        return self.head(self.norm(self.blocks(self.embed(x) + self.places)))


class Mean(nn.Module):
    """The mean over tokens."""

    def forward(self, x: Tensor) -> Tensor:
        """Return [batch, columns]."""
        return x.mean(1)


class Largest(nn.Module):
    """The largest over tokens."""

    def forward(self, x: Tensor) -> Tensor:
        """Return [batch, columns]."""
        return x.max(1).values


class Cut(nn.Module):
    """Patches of an image by reshape and permute, then a linear layer."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(12, DIM)

    def forward(self, x: Tensor) -> Tensor:
        """Return [batch, patches, columns]."""
        x = x.reshape(-1, 3, 2, 2, 3, 2).permute(0, 2, 4, 3, 5, 1)
        return self.linear(x.reshape(-1, 6, 12))


class Rolled(nn.Module):
    """A convolution whose places become tokens."""

    def __init__(self, convolution: nn.Module):
        super().__init__()
        self.convolution = convolution

    def forward(self, x: Tensor) -> Tensor:
        """Return [batch, places, columns]."""
        return self.convolution(x).flatten(2).transpose(1, 2)


class Waves(nn.Module):
    """Scaled token vectors with sines of their places."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(30, DIM)
        angles = torch.arange(TOKENS)[:, None] / 100 ** (torch.arange(0, DIM, 2) / DIM)
        self.register_buffer("waves", torch.cat([angles.sin(), angles.cos()], dim=1)[None])

    def forward(self, x: Tensor) -> Tensor:
        """Return [batch, tokens, columns]."""
        return self.table(x) * math.sqrt(DIM) + self.waves


class Padded(nn.Module):
    """PyTorch's own encoder of tokens, of which 0 is padding."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(30, DIM)
        layer = nn.TransformerEncoderLayer(DIM, 4, 40, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)

    def forward(self, x: Tensor) -> Tensor:
        """Return [batch, tokens, columns]."""
        return self.encoder(self.table(x), src_key_padding_mask=x == 0)


class Causal(nn.Module):
    """A decoder like nanoGPT."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(30, DIM), nn.Embedding(TOKENS, DIM)
        self.blocks = nn.ModuleList(Block(nn.GELU(), nn.LayerNorm, False) for _ in range(2))
        self.norm, self.head = nn.LayerNorm(DIM), nn.Linear(DIM, 30, bias=False)
        mask = torch.full((TOKENS, TOKENS), float("-inf")).triu(1)
        self.register_buffer("mask", mask)

    def forward(self, x: Tensor) -> Tensor:
        """Return scores [batch, tokens, words]."""
        y = self.words(x) + self.places(torch.arange(TOKENS))
        for block in self.blocks:
            y = block(y, self.mask)
        return self.head(self.norm(y))


class Gated(nn.Module):
    """An encoder whose MLP has a gate, which has no place on the machine."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = Block(nn.GELU(), nn.LayerNorm, False)
        self.up, self.gate, self.down = nn.Linear(DIM, 40), nn.Linear(DIM, 40), nn.Linear(40, DIM)

    def forward(self, x: Tensor) -> Tensor:
        """Return [batch, tokens, columns]."""
        x = self.inner(x)
        x = x + self.down(nn.functional.silu(self.gate(x)) * self.up(x))
        return self.inner(x)


def encoder(*, batch_first: bool = True, norm_first: bool = False) -> nn.Module:
    """Return PyTorch's own encoder."""
    layer = nn.TransformerEncoderLayer(
        DIM, 4, 40, batch_first=batch_first, norm_first=norm_first, activation="gelu"
    )
    return nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)


def linear() -> nn.Module:
    """Return a linear layer."""
    return nn.Linear(DIM, DIM)


def classifier() -> nn.Module:
    """Return a mean and a linear layer."""
    return nn.Sequential(Mean(), nn.Linear(DIM, CLASSES))


def plain() -> nn.Module:
    """Return an encoder of one's own with nothing special."""
    return Own(linear(), classifier())


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
        ("OPTForCausalLM", {**TEXT, "ffn_dim": 48, "word_embed_proj_dim": 32}),
        ("GPTNeoXForCausalLM", {**TEXT, "use_parallel_residual": False, "rotary_pct": 0.5}),
        ("GPTNeoForCausalLM",
         {"vocab_size": 50, "hidden_size": 32, "num_layers": 2, "num_heads": 4,
          "attention_types": [[["global", "local"], 1]], "window_size": 16,
          "max_position_embeddings": 32}),
        ("Qwen3ForCausalLM", {**DECODER, "head_dim": 8}),
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
    for name, make, given, names in both:
        for road in ("older", "newer"):
            yield Made(name, road, make, given, names)
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
    for name, make, one, road in once:
        yield Made(name, road, make, (one,))
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
    for name, settings, given in (
        ("BertForSequenceClassification", {**text, **three}, ids),
        ("ViTForImageClassification", {**image, **three}, pixels),
        ("LlamaForCausalLM", llama, ids),
    ):
        kind = getattr(transformers, name)

        def make(kind: Any = kind, settings: dict[str, Any] = settings) -> nn.Module:
            return kind(kind.config_class(**settings))

        yield Made(f"0 {name}", "folder", make, (given,))
        if name.startswith("Bert"):
            names = ("input_ids", "attention_mask", "token_type_ids")
            yield Made("bert", "newer", make, (ids, ones, zeros), names)
            yield Made("bert", "older", make, (ids, ones, zeros), names)
        elif name.startswith("ViT"):
            yield Made("vit", "older", make, (pixels,), ("pixel_values",))


def write(made: Made, folder: Path) -> Path:
    """Write a model with random weights, and return its file or folder."""
    return export(made, weighted(made), folder)


def weighted(made: Made) -> nn.Module:
    """Return a model with random weights."""
    torch.manual_seed(len(made.name))
    model = made.make()
    with torch.no_grad():
        for name, value in model.named_parameters():
            gain = "norm" in name.lower() or ".ln_" in name
            middle = 1.0 if gain and name.endswith("weight") else 0.0
            nn.init.normal_(value, middle, 0.2 if value.ndim > 1 else 0.1)
    return model.eval()


def export(made: Made, model: nn.Module, folder: Path) -> Path:
    """Write a model by its road, and return its file or folder."""
    if made.road == "folder":
        path = folder / made.name.replace(" ", "_")
        model.save_pretrained(path)
        return path
    path = folder / f"{made.name.replace(' ', '_').replace(',', '')}_{made.road}.onnx"
    newer = made.road == "newer"
    if made.names != ("x",):
        model = Named(model, made.names).eval()
    options = {"external_data": False, "verbose": False} if newer else {"opset_version": made.opset}
    torch.onnx.export(
        model, made.inputs, str(path), dynamo=newer, input_names=list(made.names), **options
    )
    return path
