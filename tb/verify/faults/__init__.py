"""Campaigns of faults: a bit that flips in a run, and what comes of it."""
