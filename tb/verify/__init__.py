"""Verification at random and by proof: programs, coverage, faults, fuzz, mutants, properties."""
