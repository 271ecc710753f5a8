"""Cases at random: what they try, and what is wrong where something is."""
