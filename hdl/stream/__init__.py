"""Registers, queues and optional fields of streams and pipelines."""
