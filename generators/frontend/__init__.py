"""Import of models: descriptions, weights and tokenizers from the models' files."""
