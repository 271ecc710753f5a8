"""Files of models that are not read: what they are, and what to do with them."""

from pathlib import Path

from arch.errors import InputError

_PICKLE = (
    "it is PyTorch's own, which may run code when it is read; export it to ONNX with "
    "torch.onnx.export(model.eval(), (example,), 'model.onnx'), or write it with save_pretrained"
)
_TENSORFLOW = "it is TensorFlow's; export it to ONNX with: python -m tf2onnx.convert"
_OTHERS = {
    ".pt": _PICKLE,
    ".pth": _PICKLE,
    ".ckpt": _PICKLE,
    ".pkl": _PICKLE,
    ".pt2": "it is an exported program of PyTorch; save it with its to_onnx form instead: "
    "torch.onnx.export(program, dynamo=True).save('model.onnx')",
    ".gguf": "it is llama.cpp's; use the folder with config.json and model.safetensors that it was "
    "made of",
    ".ggml": "it is llama.cpp's; use the folder with config.json and model.safetensors that it was "
    "made of",
    ".tflite": "it is TensorFlow Lite's; export the model to ONNX instead, in floating point: "
    "python -m tf2onnx.convert --tflite, or torch.onnx.export",
    ".h5": _TENSORFLOW,
    ".keras": "it is Keras'; export it to ONNX with model.export('model.onnx', format='onnx')",
    ".pb": _TENSORFLOW,
    ".safetensors": "it holds tensors alone; give the folder with it and config.json",
    ".mlmodel": "it is Core ML's; export the model that it was made of to ONNX",
    ".engine": "it is TensorRT's; use the ONNX file that it was made of",
}
_MAGIC = {b"GGUF": ".gguf", b"PK\x03\x04": ".pt", b"\x89HDF": ".h5", b"\x80\x02": ".pkl"}
KNOWN = "a folder, an ONNX file (.onnx), a llama2.c checkpoint (.bin), or a name of the package's"


def refuse_other(path: Path) -> None:
    """Raise :class:`InputError` where a file is of a form that is known and not read.

    It is known by its suffix, or by its first bytes. Folders and paths that are no file pass.
    """
    kind = path.suffix.lower()
    if path.is_dir():
        return
    if path.is_file():
        try:
            with path.open("rb") as file:
                first = file.read(8)
        except OSError as error:
            raise InputError(f"Cannot read {path}: {error.strerror}") from error
        found = [suffix for magic, suffix in _MAGIC.items() if first.startswith(magic)]
        kind = ".tflite" if first[4:] == b"TFL3" else found[0] if found else kind
    elif kind not in _OTHERS:
        return
    if kind in _OTHERS:
        raise InputError(f"File {path} is not read: {_OTHERS[kind]}")
    raise InputError(f"File {path} is not a model that is known; use {KNOWN}")
