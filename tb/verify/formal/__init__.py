"""Formal verification: proofs of the circuits' properties."""
