"""Import of Transformers from ONNX graphs, by recognition of the layers that the nodes compute."""
