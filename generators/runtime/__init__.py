"""Runs compiled models on boards, simulated circuits and the golden machine (an interpreter)."""
