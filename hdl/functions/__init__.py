"""The functions of the vector engine: softmax, norms, rotary embedding, activation tables."""
