"""Programs: drafts, addresses, loops, tokens, words, predicted cycles."""
