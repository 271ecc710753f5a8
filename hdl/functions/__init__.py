"""The vector engine's row functions: softmax, norms, rotation, tables."""
