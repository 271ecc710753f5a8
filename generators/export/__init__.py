"""A compiled model as files for others: memory images, C, registers."""
