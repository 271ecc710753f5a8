"""The vector engine, which processes rows of the accumulators or of the scratchpad."""
