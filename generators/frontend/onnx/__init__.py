"""Import of ONNX graphs: recognizes the operation of each node, and the Transformer."""
