"""Graphs of models: nodes of float models; operations, tensors and weights of integer models."""
