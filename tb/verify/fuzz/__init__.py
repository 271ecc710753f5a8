"""Fuzzing: random files, models, graphs, programs and bus traffic, whose results are checked."""
