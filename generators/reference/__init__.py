"""References that evaluate a model in floating point and in integers."""
