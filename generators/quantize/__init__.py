"""Quantization of models: calibration, quantization scales, requantization multipliers."""
