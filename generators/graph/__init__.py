"""A model as a graph: its nodes in floats and in integers, their tensors and weights."""
