"""Models as their files describe them: descriptions, weights, tokens."""
