"""Mutation testing: mutants of the units' netlists, which the units' benches must detect."""
