# %% [markdown]
# # Where the cycles go
#
# Four engines work at the same time: LOAD and STORE move data, MATRIX multiplies, VECTOR does
# softmax, norms and rounding.
# You predict the busy cycles of each engine, and find the one that limits an inference.

# %%
import celosia
from celosia.generators.program.predict import predict

model = celosia.load("digits")


def busy(**fields):
    config = celosia.config("small", **fields)
    program = celosia.compile(model, config)
    figures = predict(program.code.words, config, latency=40)
    return figures.cycles, {engine.name: cycles for engine, cycles in figures.busy.items()}


# %% [markdown]
# `latency` is the number of cycles from a request to the first word of the external memory.

# %%
engines = ("LOAD", "MATRIX", "VECTOR", "STORE")
print(f"{'machine':8}{'cycles':>8}", *(f"{engine:>7}" for engine in engines))
predicted = {}
for name, fields in {"small": {}, "2 lanes": {"lanes": 2}, "16 rows": {"rows": 16}}.items():
    predicted[name], worked = busy(**fields)
    print(f"{name:8}{predicted[name]:8,}", *(f"{worked[engine]:7,}" for engine in engines))
    assert predicted[name] >= max(worked.values())

# %% [markdown]
# ```text
# small      6,867   3,268   5,468   3,997      49
# 2 lanes   11,148   3,374   5,468   9,371      49
# ```
#
# On `small` MATRIX works in 80 % of the cycles. With two lanes VECTOR is the limit: more
# multipliers would not help.
# With 16 rows MATRIX needs fewer cycles, and VECTOR becomes the limit.
#
# An ideal array would need the model's products divided by its elements:

# %%
products = 297_280  # of `celosia inspect digits`
cycles = predicted["small"]
print(f"{products / 64:,.0f} ideal cycles, {cycles:,} predicted: {products / 64 / cycles:.0%} used")

# %% [markdown]
# ```text
# 4,645 ideal cycles, 6,867 predicted: 68% used
# ```
#
# `celosia run digits --config small` counts the cycles on the Verilog, and `celosia trace digits`
# draws each engine's commands over time.
