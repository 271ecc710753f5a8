"""Compiled models on machines: the interface of all machines, and the golden one."""
