"""Studies of models and formats: errors, perplexity, benchmarks of matrix products."""
