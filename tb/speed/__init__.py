"""Benchmarks of the speed of machines, memory controllers and simulations."""
