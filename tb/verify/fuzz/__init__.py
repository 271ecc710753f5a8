"""Fuzzing: random cases for files, models, graphs, programs and links, each with its check."""
