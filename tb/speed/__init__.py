"""Benchmarks of the speed of machines and simulations."""
