# %% [markdown]
# # Lab 1: a processing element
#
# A systolic array is a grid of processing elements. An element keeps a weight, multiplies each
# passing activation by it,
# and adds the sum from the element above. You draw its waveform as text and write its golden model.

# %%
from amaranth.sim import Simulator

from celosia.hdl.matrix.element import ProcessingElement

weight, activations, sums = 3, [1, 2, -4, 5, 0, 7], [0, 0, 0, 0, 100, 200, 300]
element = ProcessingElement(
    weight_depth=1, width=8, sum_i_width=20, sum_o_width=20, gating=False, transpose=False
)
waves = {name: [] for name in ("row_strobe_i", "a_i", "a_o", "sum_i", "sum_o")}


async def bench(ctx):
    ctx.set(element.column_data, weight)
    for cycle in range(14):
        ctx.set(element.row_strobe_i, cycle == 0)
        ctx.set(element.a_i, activations[cycle - 1] if 1 <= cycle <= len(activations) else 0)
        ctx.set(element.sum_i, sums[cycle - 1] if 1 <= cycle <= len(sums) else 0)
        for name, values in waves.items():
            values.append(ctx.get(getattr(element, name)))
        await ctx.tick()


simulator = Simulator(element)
simulator.add_clock(1e-6)
simulator.add_testbench(bench)
simulator.run()
print(f"{'cycle':13}" + "".join(f"{cycle:5}" for cycle in range(14)))
for name, values in waves.items():
    print(f"{name:13}" + "".join(f"{value:5}" for value in values))

# %% [markdown]
# ## Exercise 1
#
# The activation 1 enters in cycle 1. In how many cycles does its product, 3, leave on `sum_o`?

# %% tags=["exercise"]
latency = ...

# %% tags=["check"]
assert waves["sum_o"][1 + latency] == 3
assert waves["sum_o"][latency] == 0

# %% [markdown]
# ## Exercise 2
#
# In how many cycles does a value of `sum_i` leave on `sum_o`? Elements of a column are below each
# other:
# by how many cycles must an activation of the second row enter later than one of the first row?

# %% tags=["exercise"]
sum_latency = ...
skew = ...

# %% tags=["check"]
leaves = 7 + sum_latency
assert waves["sum_o"][leaves] == 300 + weight * waves["a_i"][leaves - latency]
assert skew == sum_latency

# %% [markdown]
# ## Exercise 3
#
# Write the golden model: the values of `sum_o` in all cycles, from the values of `a_i` and `sum_i`.


# %% tags=["exercise"]
def golden(weight, a_i, sum_i):
    """Return sum_o in each cycle."""
    ...


# %% tags=["check"]
assert golden(weight, waves["a_i"], waves["sum_i"])[2:] == waves["sum_o"][2:]
