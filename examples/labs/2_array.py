# %% [markdown]
# # Lab 2: an array
#
# A weight-stationary array of 4x4 elements multiplies rows of activations by a matrix that stays
# in it.
# You measure its latency, and the rows that it needs to be well used.

# %%
import numpy as np
from amaranth.sim import Simulator

import celosia

random = np.random.default_rng(1)
weights = random.integers(-128, 128, (4, 4))
rows = random.integers(-128, 128, (12, 4))


def simulate(rows):
    """Return the output rows of an array with ``weights``, and the cycle of each."""
    array, outputs, cycles = celosia.hdl.SystolicArray(rows=4, cols=4), [], []

    async def bench(ctx):
        for index, line in enumerate(weights):
            ctx.set(array.i_weights.payload, {"data": line.tolist(), "index": index})
            ctx.set(array.i_weights.valid, 1)
            await ctx.tick()
        ctx.set(array.i_weights.valid, 0)
        for cycle in range(len(rows) + 40):
            ctx.set(array.i.valid, cycle < len(rows))
            if cycle < len(rows):
                ctx.set(array.i.payload, {"a": rows[cycle].tolist()})
            if ctx.get(array.o.valid):
                outputs.append(list(ctx.get(array.o.payload)))
                cycles.append(cycle)
            await ctx.tick()

    simulator = Simulator(array)
    simulator.add_clock(1e-6)
    simulator.add_testbench(bench)
    simulator.run()
    return outputs, cycles


outputs, cycles = simulate(rows)
print("row 0 enters in cycle 0; rows leave in cycles", cycles)

# %% [markdown]
# ## Exercise 1
#
# Write the product that the array computes. The result is integers [rows, columns].


# %% tags=["exercise"]
def product(rows, weights):
    """Return the sums of the products."""
    ...


# %% tags=["check"]
assert product(rows, weights).tolist() == outputs

# %% [markdown]
# ## Exercise 2
#
# Give the latency in cycles, and the cycles from the first row in to the last row out, as a
# function of the number of rows.

# %% tags=["exercise"]
latency = ...


def cycles_of(count):
    """Return the cycles from the first of ``count`` rows in to the last out."""
    ...


# %% tags=["check"]
assert latency == cycles[0]
for count in (1, 5, 12):
    assert cycles_of(count) == simulate(rows[:count])[1][-1] + 1

# %% [markdown]
# ## Exercise 3
#
# Utilization is useful products divided by elements times cycles. How many rows at least give a
# utilization of 90 %
# if the weights are in the array already?

# %% tags=["exercise"]
least_rows = ...

# %% tags=["check"]
assert 16 * least_rows / (16 * cycles_of(least_rows)) >= 0.9
assert 16 * (least_rows - 1) / (16 * cycles_of(least_rows - 1)) < 0.9
