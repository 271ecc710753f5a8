"""Campaigns: many independent cases on many processes or machines, whose results survive."""
