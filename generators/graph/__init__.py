"""Graphs of models, both of the float models and of the quantized integer models."""
