"""Programs: instructions, addresses, loops, dependency tokens, program words, cycles."""
