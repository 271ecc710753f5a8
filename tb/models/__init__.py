"""Models on simulated machines: sessions, testbenches, traces and pictures."""
