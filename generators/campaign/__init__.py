"""Campaigns run many independent cases on processes or machines, and store the results."""
