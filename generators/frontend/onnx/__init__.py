"""Import of ONNX graphs: finds the nodes' operations, then the Transformer that they form."""
