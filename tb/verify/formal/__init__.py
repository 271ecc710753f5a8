"""Proofs of the circuits' properties."""
