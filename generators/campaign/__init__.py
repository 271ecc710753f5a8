"""Campaigns: series of many independent test cases, run in parallel, with stored results."""
