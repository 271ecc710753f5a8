"""Tests, and in `support` the models and benches that only they use."""
