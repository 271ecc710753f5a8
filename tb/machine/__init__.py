"""The accelerator in a fast simulation: builds, harnesses, recordings, self-test."""
