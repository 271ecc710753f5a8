"""Completes programs: assigns addresses, and adds loops and dependency tokens.

The programs are then encoded as program words, and the cycles of their runs are predicted.
"""
