"""The sparse unit: products of sparse matrices that skip zero weights."""
