"""Completion of programs: instructions get addresses, loops and dependency tokens.

They are then encoded as program words, and their cycles are predicted.
"""
