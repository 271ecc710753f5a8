"""Cases at random: their attempts, and their errors if any."""
