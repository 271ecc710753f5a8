"""Studies of models and formats: errors, perplexity, matrix products of any shape."""
