"""Compiled models on machines: host data, the interface of machines, the golden machine."""
