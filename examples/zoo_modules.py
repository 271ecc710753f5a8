"""Parts and whole encoders in plain PyTorch, for the models of examples/zoo.py."""

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn

DIM, TOKENS, CLASSES = 24, 6, 3


class Named(nn.Module):
    """A transformers model whose inputs have an order, and which returns its first output."""

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
        probabilities = (scores if added is None else scores + added).softmax(-1)
        if self.einsum:
            context = torch.einsum("bhij,bjhd->bihd", probabilities, v)
        else:
            context = (probabilities @ v.transpose(1, 2)).transpose(1, 2)
        x = x + self.output(context.flatten(2))
        return x + self.down(self.activation(self.up(self.second_norm(x))))


class Own(nn.Module):
    """An encoder in plain PyTorch: an embedding, blocks, and a head."""

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
        """Return the head's output for the normalized rows."""
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
    """PyTorch's encoder for tokens; token 0 is padding."""

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
    """An encoder whose MLP has a gate, which the machine does not support."""

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
    """Return PyTorch's encoder."""
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
    """Return an encoder in plain PyTorch with the usual parts."""
    return Own(linear(), classifier())
