"""Neural networks on simulated machines: sessions, testbenches, traces and pictures."""
