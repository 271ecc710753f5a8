"""The sparse unit, which multiplies by sparse matrices and skips their zero weights."""
