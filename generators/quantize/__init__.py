"""From floating point to integers: calibration, steps, multipliers."""
