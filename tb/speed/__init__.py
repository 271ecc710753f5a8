"""Speed: benches that measure machines, simulations and the compiler."""
