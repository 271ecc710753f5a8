# %% [markdown]
# # Lab 3: a softmax
#
# The softmax unit takes scores of 16 bits, 256 to an octave: a score that is 256 larger has twice
# the weight.
# Probabilities have 24 bits of fraction. You find its rules with the golden model, and its time
# with the circuit.

# %%
import numpy as np
from amaranth.sim import Simulator

import celosia

print(celosia.golden.softmax([256, 0, 0, 0]) / 2**24)

# %% [markdown]
# ## Exercise 1
#
# Which difference of scores gives weights of 1 to 8? Which factor turns scores in natural units
# (for e**x) into scores of the unit?

# %% tags=["exercise"]
difference = ...
factor = ...

# %% tags=["check"]
one, eight = celosia.golden.softmax([0, difference])
assert abs(eight / one - 8) < 1e-3
natural = np.exp([0.5, -1.0, 2.0])
scores = np.round(np.array([0.5, -1.0, 2.0]) * factor).astype(int)
assert np.abs(celosia.golden.softmax(scores) / 2**24 - natural / natural.sum()).max() < 2e-3

# %% [markdown]
# ## Exercise 2
#
# Write softmax in floating point for scores of the unit. Subtract the largest score first: without
# that, 2**(32767 / 256) overflows 32 bits.


# %% tags=["exercise"]
def softmax(scores):
    """Return probabilities as floats."""
    ...


# %% tags=["check"]
random = np.random.default_rng(1)
for _ in range(20):
    scores = random.integers(-(2**15), 2**15, 8)
    error = np.abs(softmax(scores) - celosia.golden.softmax(scores) / 2**24).max()
    assert error < 1e-3, error

# %% [markdown]
# ## Exercise 3
#
# The circuit below has four lanes and gets rows of eight scores, two beats each. Look at the
# printed cycles:
# in how many cycles does a row leave after its last beat has entered, and how many beats enter in
# a cycle on average?

# %%
unit = celosia.hdl.Softmax(lanes=4, max_row=64)
entered, left = [], []


async def send(ctx):
    for beat in range(40):
        payload = {"q": [64 * beat, 0, -256, 256], "mask": 0b1111, "last": beat % 2}
        ctx.set(unit.i.payload, payload)
        ctx.set(unit.i.valid, 1)
        await ctx.tick().until(unit.i.ready)
    ctx.set(unit.i.valid, 0)


async def watch(ctx):
    ctx.set(unit.o.ready, 1)
    for cycle in range(140):
        if ctx.get(unit.i.valid & unit.i.ready):
            entered.append(cycle)
        if ctx.get(unit.o.valid):
            left.append(cycle)
        await ctx.tick()


simulator = Simulator(unit)
simulator.add_clock(1e-6)
simulator.add_testbench(send)
simulator.add_testbench(watch)
simulator.run()
print("beats enter in cycles", entered[:8])
print("beats leave in cycles", left[:8])

# %% tags=["exercise"]
row_latency = ...
beats_per_cycle = ...

# %% tags=["check"]
assert left[0] - entered[1] == row_latency
assert round((len(entered) - 1) / (entered[-1] - entered[0]), 1) == beats_per_cycle
assert len(left) == len(entered)
