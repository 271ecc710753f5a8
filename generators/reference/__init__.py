"""Reference evaluation of models, in floating point and in integers."""
