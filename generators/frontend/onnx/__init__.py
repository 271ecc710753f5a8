"""ONNX graphs: their nodes' meaning, and the Transformer found in them."""
