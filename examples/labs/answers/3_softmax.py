# %%
difference = 3 * 256
factor = 256 / np.log(2)


# %%
def softmax(scores):
    """Return probabilities as floats."""
    weights = 2.0 ** ((scores - scores.max()) / 256)
    return weights / weights.sum()


# %%
row_latency = 27
beats_per_cycle = 1.0
