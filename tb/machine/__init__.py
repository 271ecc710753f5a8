"""Fast simulations of the accelerator: builds, C++ harnesses, recordings, self-test."""
