"""Studies of models and formats: errors, perplexity, and matrix products of any shape."""
