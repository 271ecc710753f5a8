"""The vector engine's functions of rows: softmax, norms, rotation, tables."""
