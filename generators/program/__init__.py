"""Completion of programs: addresses, loops, dependency tokens, encoding, predicted cycles."""
