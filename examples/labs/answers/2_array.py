# %%
def product(rows, weights):
    """Return the sums of the products."""
    return rows @ weights


# %%
latency = 11


def cycles_of(count):
    """Return the cycles from the first of ``count`` rows in to the last out."""
    return latency + count


# %%
least_rows = 99
