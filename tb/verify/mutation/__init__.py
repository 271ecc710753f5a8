"""Mutants of the units' netlists, and whether the units' benches notice them."""
