"""Import of ONNX graphs: recognizes the operations of the nodes and the Transformer they form."""
