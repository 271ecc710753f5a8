# %%
def digit(output):
    """Return the digit of an output of shape [1, 10]."""
    return int(output.argmax())


# %%
fields = {"rows": 16}

# %%
digits_per_second = 80e6 / program.cycles
saved_bytes = program.bytes - int4.bytes
