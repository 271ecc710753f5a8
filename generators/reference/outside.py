"""Functions that compute a model's outputs with transformers or ONNX Runtime, as a reference.

Celosia's outputs of the same model are compared with these outputs.
"""

import logging
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np

from celosia.arch.errors import InputError
from celosia.arch.packages import library
from celosia.generators.frontend.host_steps import Array
from celosia.generators.frontend.hugging_face_folder import Folder
from celosia.generators.frontend.hugging_face_pair import PAIR_FAMILIES
from celosia.generators.frontend.named_inputs import Values
from celosia.generators.frontend.onnx.file import read_model
from celosia.generators.frontend.onnx.halves import has_halves, widened
from celosia.generators.frontend.onnx.reading import read_graph
from celosia.generators.frontend.text_families import TEXT_FAMILIES

_OUTPUTS = (
    *("logits", "prediction_logits", "image_embeds", "last_hidden_state"),
    *("seq_relationship_logits", "start_logits"),
)
"""Names of outputs; the first one that a model has is used."""
_INPUTS = {
    "vit": "pixel_values",
    "deit": "pixel_values",
    "dinov2": "pixel_values",
    "clip_vision_model": "pixel_values",
    "audio-spectrogram-transformer": "input_values",
}
"""Name of the input, for model types whose input is not token numbers."""


def folder_reference(path: Path) -> Callable[..., Array]:
    """Return a function that computes a Hugging Face model's output with transformers.

    The function takes one input (an encoder-decoder's source and answer) without a batch axis, and
    returns float64 [rows, columns]. Raises :class:`InputError` if a library, a weight or the folder
    cannot be read.
    """
    torch = library("torch", "A reference of a folder needs", extra="zoo")
    transformers = library("transformers", "A reference of a folder needs", extra="zoo")
    folder = Folder(path)
    named = getattr(transformers, folder.architecture or "AutoModel", None)
    if folder.kind in TEXT_FAMILIES:
        named = transformers.AutoModelForCausalLM
    elif folder.kind in PAIR_FAMILIES:
        named = transformers.AutoModelForSeq2SeqLM
    if named is None:
        raise InputError(f"transformers has no class {folder.architecture}")
    logging.getLogger("transformers").setLevel(logging.CRITICAL)
    transformers.utils.logging.disable_progress_bar()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            model, loading = named.from_pretrained(
                path,
                dtype=torch.float64,
                attn_implementation="eager",
                output_loading_info=True,
                local_files_only=True,
                use_safetensors=True,
            )
        except Exception as error:
            raise InputError(f"transformers does not read {path}: {_reason(error)}") from error
    lacking = sorted(map(str, [*loading["missing_keys"], *loading.get("mismatched_keys", ())]))
    lacking = [tensor for tensor in lacking if "pooler" not in tensor]
    if lacking:
        raise InputError(f"transformers does not find {lacking[0]} in {path}")
    model.eval()
    name = _INPUTS.get(folder.kind, "input_ids")

    def compute(*inputs: Array) -> Array:
        tensors = [torch.from_numpy(np.array(array)[None]) for array in inputs]
        if name != "input_ids":
            tensors = [tensor.to(torch.float64) for tensor in tensors]
        if "MultipleChoice" in folder.architecture:
            tensors = [tensor[None] for tensor in tensors]
        answers = dict(zip((name, "decoder_input_ids"), tensors, strict=False))
        try:
            with torch.no_grad():
                answer = model(**answers)
        except Exception as error:
            raise InputError(f"transformers does not run {path}: {_reason(error)}") from error
        output = next(
            output_name
            for output_name in _OUTPUTS
            if getattr(answer, output_name, None) is not None
        )
        value = getattr(answer, output)
        if output == "start_logits":
            value = torch.stack([value, answer.end_logits], dim=-1)
        elif folder.architecture == "ElectraForPreTraining":
            value = value[..., None]
        return np.atleast_2d(np.asarray(value[0].numpy(), np.float64))

    return compute


def graph_reference(path: Path, tokens: int = 0) -> Callable[..., Array]:
    """Return a function that computes an ONNX file's output in float64 with ONNX Runtime.

    The function takes an array, or a dictionary of arrays by input name. ``tokens`` is the number
    of the input's tokens, or 0 if the graph fixes it. Raises :class:`InputError` if the file cannot
    be run.
    """
    runtime = library("onnxruntime", "A reference of an ONNX file needs", "onnxruntime")
    graph = read_graph(path, tokens, lambda made: made)
    options = runtime.SessionOptions()
    # Optimizations compute products with int8 weights in int8, though the graph has floats.
    options.graph_optimization_level = runtime.GraphOptimizationLevel.ORT_DISABLE_ALL
    model = read_model(path)
    try:
        content = widened(model).SerializeToString() if has_halves(model) else str(graph.file)
        session = runtime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
    except Exception as error:
        raise InputError(f"ONNX Runtime does not run {path}: {_reason(error)}") from error

    def compute(values: Values) -> Array:
        first = graph.inputs[0]
        others = values if isinstance(values, Mapping) else {}
        own = values[first.name] if isinstance(values, Mapping) else values
        length = np.size(own) if first.kind == "tokens" else graph.tokens
        feeds = graph.feeds(own, length, others)
        if graph.batch > 1:
            feeds = {name: np.repeat(array, graph.batch, axis=0) for name, array in feeds.items()}
        try:
            output = session.run([graph.output], feeds)[0][: None if graph.batch == 1 else 1]
        except Exception as error:
            raise InputError(f"ONNX Runtime does not run {path}: {_reason(error)}") from error
        return np.asarray(output, np.float64)

    return compute


def _reason(error: Exception) -> str:
    return str(error).strip().partition("\n")[0]
