"""From parameters to Verilog, and from a trained model to a program."""
