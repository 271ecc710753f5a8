"""Support code for tools: the build cache, subprocesses, and file output."""
