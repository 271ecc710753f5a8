"""Import of ONNX graphs: the meaning of their nodes, and the Transformer that they compute."""
