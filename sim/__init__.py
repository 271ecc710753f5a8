"""The golden models: plain integer NumPy."""
