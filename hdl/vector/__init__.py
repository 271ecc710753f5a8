"""The vector engine, from accumulators or scratchpad back to the scratchpad."""
