"""Import of ONNX graphs: recognizes each node's operation, then the Transformer that they form."""
