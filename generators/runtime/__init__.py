"""Modules that run compiled models on machines: host data, machine interface, golden machine."""
