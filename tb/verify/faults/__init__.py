"""Fault injection: campaigns in which a bit of the circuit flips during a run."""
