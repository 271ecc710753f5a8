"""Verification by random tests, coverage, fault injection, fuzzing, mutation, and formal proof."""
