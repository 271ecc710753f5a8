"""Mutants of the units' netlists, and a check that the units' benches detect them."""
