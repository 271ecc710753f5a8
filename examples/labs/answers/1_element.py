# %%
latency = 4

# %%
sum_latency = 1
skew = 1


# %%
def golden(weight, a_i, sum_i):
    """Return sum_o in each cycle."""
    products = [0] * 4 + [weight * a for a in a_i]
    earlier = [0, *sum_i]
    return [products[cycle] + earlier[cycle] for cycle in range(len(a_i))]
