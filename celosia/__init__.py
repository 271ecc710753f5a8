"""Open Transformer accelerators, generated from parameters and proven bit for bit."""
