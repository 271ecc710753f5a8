"""Campaigns of faults: a bit that flips in a run, and its effect."""
