"""Model graphs: nodes of the float model, and operations, tensors and weights in integers."""
