"""From a float decoder to integers: steps by what the tensors of sampled texts hold.

Everything is static. Weights are symmetric INT8 with one step for each output; activations have a
step for each column where the machine's parameters are by column, which the neighbouring weights
take in, and one for all where they are not. A step is the one with the least squared error over
the samples, so that rare large values may saturate.
"""

import math

import numpy as np
from numpy.typing import ArrayLike

from arch.errors import InputError
from arch.functions import FUNCTIONS, OCTAVE_FRACTION, PROBABILITY_FRACTION, int8_table
from generators.frontend.text_description import TextDescription
from generators.frontend.weights import Floats, Weights
from generators.graph import Ints, Rescale, rescale_of
from generators.quantize.balance import column_gains
from generators.quantize.decoder_calibrate import Progress, SampledTexts, sample_texts
from generators.quantize.decoder_options import DecoderOptions
from generators.quantize.steps import (
    NARROW_BITS,
    attention_range,
    best_range,
    best_step,
    best_steps,
    copied_middle,
)
from generators.reference.decoder import (
    INT8_MAX,
    INT8_MIN,
    ROTARY_STEPS,
    TIMES_STEPS,
    Decoder,
    DecoderLayer,
    DecoderNorm,
    Projection,
)
from generators.reference.float_model import FUNCTION_NAMES
from sim.norm import norm_parameters, quantize_eps
from sim.requantize import INT16_MAX
from sim.rotary import rotary_table

LOST = 20.0
"""How much less than the largest a score is that counts for nothing (natural units)."""
HEADROOM = 2.0
"""How much larger than in the samples an INT16 value may become before it saturates."""


def quantize_decoder(
    model: TextDescription,
    weights: Weights,
    begin: int,
    options: DecoderOptions | None = None,
    progress: Progress | None = None,
) -> Decoder:
    """Return a decoder in integers, calibrated on texts that it makes up itself from ``begin``.

    Raises :class:`InputError` where a number of the model cannot be represented.
    """
    options = options or DecoderOptions()
    samples = sample_texts(
        model,
        weights,
        begin,
        count=options.texts,
        length=min(options.length, model.positions),
        seed=options.seed,
        progress=progress,
    )
    return quantize_calibrated(model, weights, samples, options)


def quantize_calibrated(
    model: TextDescription,
    weights: Weights,
    samples: SampledTexts,
    options: DecoderOptions | None = None,
) -> Decoder:
    """Return a decoder in integers, calibrated on texts that are sampled already.

    Raises :class:`InputError` where a number of the model cannot be represented.
    """
    return _Quantizer(model, weights, samples, options or DecoderOptions()).run()


class _Quantizer:
    """Steps are real values of one integer step, of each column of a tensor, or a float for all."""

    def __init__(
        self,
        model: TextDescription,
        weights: Weights,
        samples: SampledTexts,
        options: DecoderOptions,
    ):
        self.model, self.weights, self.options = model, weights, options
        self.tensors, self.length = samples.tensors, samples.tokens.shape[1]
        sums = [np.abs(t).max() for name, t in self.tensors.items() if name.endswith("_sum")]
        words, places = weights["words"], weights.get("positions", np.zeros((1, model.dim)))
        largest = max(*sums, np.abs(words).max() + np.abs(places).max())
        self.stream = HEADROOM * float(largest) / INT16_MAX
        self.rotary = model.position == "rotary"
        self.narrow = options.kv_bits < NARROW_BITS
        doubled = options.doubled
        if doubled is None:
            doubled = model.head_dim // 4 if self.narrow else 0
        first = model.head_dim - 2 * doubled if self.rotary else model.head_dim
        if first < 0:
            raise InputError(f"Heads of {model.head_dim} columns have no {doubled} pairs to double")
        # Which column of a float head each of an integer head's is.
        self.columns = np.concatenate([np.arange(model.head_dim), np.arange(first, model.head_dim)])

    def run(self) -> Decoder:
        model, weights = self.model, self.weights
        steps = np.abs(weights["words"]).max(axis=0) / INT8_MAX  # [dim]
        steps = np.where(steps > 0, steps, self.stream)
        positions = rotary = None
        if self.rotary:
            places = np.arange(self.options.places or model.positions)
            table = rotary_table(places, model.head_dim, model.head_dim, model.rotary_base)
            rotary = table.astype(np.int64)[:, self.columns]
        else:
            positions = np.rint(weights["positions"] / self.stream).astype(np.int64)
        final_norm, final = self._norm("final_norm", "final")
        logit_scale = HEADROOM * float(np.abs(self.tensors["logits"]).max()) / INT16_MAX
        head = weights["words" if model.tied else "head.weight"]
        return Decoder(
            description=model,
            kv_bits=self.options.kv_bits,
            key_dim=len(self.columns),
            embedding=np.rint(weights["words"] / steps).astype(np.int64),
            embedding_rescale=rescale_of(np.zeros(model.dim), steps / self.stream),
            positions=positions,
            rotary=rotary,
            probabilities=rescale_of(0, INT8_MAX / 2.0**PROBABILITY_FRACTION),
            layers=tuple(self._layer(f"layers.{index}") for index in range(model.layers)),
            final_norm=final_norm,
            head=_projection(head, np.zeros(len(head)), final, logit_scale),
            stream_scale=self.stream,
            logit_scale=logit_scale,
        )

    def _norm(self, name: str, target: str) -> tuple[DecoderNorm, Floats]:
        """Return a norm and the steps of the columns that it gives."""
        gamma = self.weights[f"{name}.weight"]
        beta = self.weights.get(f"{name}.bias", np.zeros(len(gamma)))
        if self.options.folded and self.model.norm == "rmsnorm":
            gained = gamma != 0
            step = best_step(self.tensors[target][:, gained] / gamma[gained], INT8_MAX)
            steps = step * gamma
            found = norm_parameters([1 / step], [0.0], 1.0)
        else:
            steps = self._balanced(target)
            found = norm_parameters(gamma / steps, beta / steps, 1.0)
        bias, multiplier, shift = (part.astype(np.int64) for part in found)
        eps = quantize_eps(self.model.epsilon, n=self.model.dim, scale=self.stream)
        return DecoderNorm(Rescale(bias, multiplier, shift), eps), steps

    def _balanced(self, name: str) -> Floats:
        values = self.tensors[name]
        gains = column_gains(np.abs(values).max(axis=0), self.options.balance)
        return np.asarray(best_step(values / gains, INT8_MAX) * gains)

    def _context(self, name: str, values: Floats) -> tuple[Floats, Floats]:
        """Return the steps of what attention mixes of values of some steps, and theirs in these."""
        if not self.options.alike:
            steps = self._balanced(name)
            return steps, values / steps
        step = best_step(self.tensors[name] / values, INT8_MAX)
        return step * values, np.full(len(values), 1.0 / step)

    def _linear(self, name: str, source: ArrayLike, target: ArrayLike) -> Projection:
        weight = self.weights[f"{name}.weight"]
        return _projection(weight, self._bias(name), source, target)

    def _bias(self, name: str) -> Floats:
        return self.weights.get(f"{name}.bias", np.zeros(len(self.weights[f"{name}.weight"])))

    def _layer(self, prefix: str) -> DecoderLayer:
        attention_norm, x = self._norm(f"{prefix}.attention_norm", f"{prefix}.attention_input")
        query, key, kept_key, scores = self._queries_and_keys(prefix, x)
        middle, value = best_range(self.tensors[f"{prefix}.value"], self.options.kv_bits)
        # Shares sum to one, so what is taken from all values is missing in their mean.
        missing = self._of_heads(np.rint(INT8_MAX * middle / value))
        context, mixed = self._context(f"{prefix}.context", self._of_heads(value))
        mlp_norm, h = self._norm(f"{prefix}.mlp_norm", f"{prefix}.mlp_input")
        gate, up, table, zero, hidden = self._mlp(prefix, h)
        down = self._linear(f"{prefix}.down", hidden, self.stream)
        if gate is None:
            down, zero = _without_zero(down, zero), 0
        return DecoderLayer(
            attention_norm=attention_norm,
            query=query,
            key=key,
            kept_key=kept_key,
            value=_projection(
                self.weights[f"{prefix}.value.weight"],
                self._bias(f"{prefix}.value") - middle,
                x,
                value,
            ),
            scores=scores,
            context=rescale_of(missing, mixed / INT8_MAX),
            output=self._linear(f"{prefix}.output", context, self.stream),
            mlp_norm=mlp_norm,
            gate=gate,
            up=up,
            table=table,
            gate_zero=zero,
            down=down,
        )

    def _of_heads(self, values: Floats) -> Floats:
        """Return values of the columns of key heads for those of all query heads."""
        by_head = values.reshape(self.model.kv_heads, -1)
        return np.repeat(by_head, self.model.group, axis=0).ravel()

    def _queries_and_keys(
        self, prefix: str, x: Floats
    ) -> tuple[Projection, Projection, Rescale | None, Rescale]:
        """Return queries, keys, what follows the keys' rotation, and the scores of each head.

        A query's step times a key's is the same for all columns of a head, so what a column of
        keys gains that of its queries loses. What is taken from all keys alike changes all scores
        of a query alike, and softmax not at all; so it may be taken behind the rotation.
        """
        model, columns = self.model, self.columns
        keys = self.tensors[f"{prefix}.key"].reshape(-1, model.kv_heads, model.head_dim)
        queries = self.tensors[f"{prefix}.query"].reshape(-1, model.heads, model.head_dim)
        middle, steps = np.zeros(keys.shape[1:]), self._balanced_keys(keys, queries)
        if self.narrow or not self.rotary:
            middle, steps = self._narrow_keys(keys, queries)
        raised = self._raised(queries, keys - middle)
        # A pair that is kept twice has half the weight each time.
        copies = np.bincount(columns)[columns]  # [key_dim]
        copy = np.arange(len(columns)) // model.head_dim
        middle = copied_middle(middle[:, columns], steps[:, columns], copies, copy)
        steps = steps[:, columns]  # [kv_heads, key_dim]
        weight = np.repeat(steps, model.group, axis=0) / copies  # [heads, key_dim]
        weighed = queries[:, :, columns] * weight
        product = np.array([best_step(weighed[:, head], INT8_MAX) for head in range(model.heads)])
        if self.options.alike:
            product[:] = product.max()
        query_steps = product[:, None] / weight  # [heads, key_dim]
        octaves = math.log2(math.e) * 2.0**OCTAVE_FRACTION / math.sqrt(model.head_dim)
        scores = rescale_of(np.rint(raised / product), product * octaves)
        turned = ROTARY_STEPS if self.rotary else 1
        query = self._heads(f"{prefix}.query", x, query_steps / turned)
        if not self.rotary:
            return query, self._heads(f"{prefix}.key", x, steps, middle), None, scores
        if not self.narrow:
            return query, self._heads(f"{prefix}.key", x, steps / turned), None, scores
        first = np.full(steps.shape, HEADROOM * float(np.abs(keys).max()) / INT16_MAX)
        kept = rescale_of(-np.rint(middle / first).ravel(), (first / steps).ravel())
        return query, self._heads(f"{prefix}.key", x, first), kept, scores

    def _raised(self, queries: Floats, keys: Floats) -> Floats:
        """Return what is added to the scores of each head [heads], before their scale.

        Softmax does not notice, but INT16 has room for scores of -89 to 88 natural units only. The
        largest scores of queries come to lie as far from the upper end as from LOST above the
        lower one: what is so much less than the largest counts for nothing.
        """
        model, room = self.model, INT16_MAX / 2.0**OCTAVE_FRACTION * math.log(2)
        causal = np.tri(self.length, dtype=bool)
        raised = np.zeros(model.heads)
        for head in range(model.heads):
            low, high = math.inf, -math.inf
            for first in range(0, len(queries), self.length):
                text = slice(first, first + self.length)
                scores = queries[text, head] @ keys[text, head // model.group].T
                largest = np.where(causal, scores, -np.inf).max(axis=1) / math.sqrt(model.head_dim)
                low, high = min(low, largest.min()), max(high, largest.max())
            if high > room / 2 or low < LOST - room / 2:
                raised[head] = (LOST - low - high) / 2 * math.sqrt(model.head_dim)
        return raised

    def _narrow_keys(self, keys: Floats, queries: Floats) -> tuple[Floats, Floats]:
        """Return middles and steps of keys [kv_heads, head_dim].

        Queries are rotated in their steps, so a pair of theirs has one, as that of the keys.
        """
        model, bits = self.model, self.options.kv_bits
        together = 2 if self.rotary else 1
        if not self.narrow:
            middle, steps = best_range(keys.reshape(len(keys), -1), bits, together)
            return middle.reshape(keys.shape[1:]), steps.reshape(keys.shape[1:])
        copies = np.bincount(self.columns).tolist()
        by_text = keys.reshape(-1, self.length, model.kv_heads, model.head_dim)
        asked = queries.reshape(*by_text.shape[:3], model.group, model.head_dim)
        found = [
            attention_range(
                by_text[:, :, head],
                asked[:, :, head].swapaxes(1, 2),
                bits,
                together,
                copies,
            )
            for head in range(model.kv_heads)
        ]
        return np.stack([one for one, _ in found]), np.stack([one for _, one in found])

    def _balanced_keys(self, keys: Floats, queries: Floats) -> Floats:
        """Return steps of INT8 keys [kv_heads, head_dim], alike in the columns of a pair.

        Queries have as few bits as keys, so both share what columns differ in.
        """
        model = self.model
        pairs = (model.head_dim // 2, 2) if self.rotary else (model.head_dim, 1)
        of_keys = np.abs(keys).reshape(-1, model.kv_heads, *pairs).max(axis=(0, 3))
        split = np.abs(queries).reshape(-1, model.kv_heads, model.group, *pairs)
        of_queries = split.max(axis=(0, 2, 4))
        least = 1e-6
        ratio = (of_keys + least * of_keys.max()) / (of_queries + least * of_queries.max())
        gains = np.repeat(np.sqrt(ratio), pairs[1], axis=1)  # [kv_heads, head_dim]
        scaled = keys / gains  # [m, kv_heads, head_dim]
        steps = [best_step(scaled[:, head], INT8_MAX) for head in range(model.kv_heads)]
        return np.asarray(gains * np.array(steps)[:, None])

    def _heads(self, name: str, x: Floats, steps: Floats, middle: ArrayLike = 0.0) -> Projection:
        """Return queries or keys in the columns and steps [heads, key_dim] of integer heads."""
        heads = len(steps)
        rows = (np.arange(heads)[:, None] * self.model.head_dim + self.columns).ravel()
        weight, bias = self.weights[f"{name}.weight"][rows], self._bias(name)[rows]
        moved = bias - np.broadcast_to(middle, steps.shape).ravel()
        return _projection(weight, moved, x, steps.ravel())

    def _mlp(
        self, prefix: str, x: Floats
    ) -> tuple[Projection | None, Projection, Ints, int, Floats]:
        """Return gate, up, table, its zero point, and the steps of what down takes."""
        model = self.model
        function = FUNCTIONS[FUNCTION_NAMES[model.activation]]
        name = "gate" if model.gated else "up"
        values = self.tensors[f"{prefix}.{name}"]
        before = best_step(values, INT8_MAX)
        results = function(values)
        low, high = min(float(results.min()), 0.0), max(float(results.max()), 0.0)
        after = (high - low) / (INT8_MAX - INT8_MIN) or 1.0
        zero = int(np.clip(round(INT8_MIN - low / after), INT8_MIN, INT8_MAX))
        table = int8_table(function, before, 0, after, zero)
        first = self._linear(f"{prefix}.{name}", x, before)
        if not model.gated:
            return None, first, table, zero, np.full(model.ffn, after)
        # INT16 in front of the product must hold the other factor.
        largest = np.abs(self.tensors[f"{prefix}.up"]).max(axis=0)
        least = largest * TIMES_STEPS * after / INT16_MAX
        hidden = np.maximum(self._balanced(f"{prefix}.hidden"), least)
        up = self._linear(f"{prefix}.up", x, hidden / (TIMES_STEPS * after))
        return first, up, table, zero, hidden


def _without_zero(down: Projection, zero: int) -> Projection:
    """Return a linear layer of inputs that have a zero point, which its bias takes."""
    by = down.rescale
    bias = by.bias - zero * down.weight.sum(axis=0)
    return Projection(down.weight, Rescale(bias, by.multiplier, by.shift))


def _projection(matrix: Floats, bias: Floats, source: ArrayLike, target: ArrayLike) -> Projection:
    """Return a linear layer [outputs, inputs] between tensors of some steps, by column or one."""
    taken = matrix * np.asarray(source)  # [n, k]
    steps = best_steps(taken.T, INT8_MAX)  # [n]
    weight = np.clip(np.rint(taken / steps[:, None]), -INT8_MAX, INT8_MAX).astype(np.int64).T
    return Projection(weight, rescale_of(np.rint(bias / steps), steps / np.asarray(target)))
