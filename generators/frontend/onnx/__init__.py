"""Import of ONNX graphs: recognizes the nodes' operations, then the Transformer that these form."""
