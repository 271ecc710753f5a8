"""Campaigns: many independent cases on several processes or machines, with stored results."""
