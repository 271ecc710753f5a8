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
    program = celosia.compile(model, config, search=False)
    figures = predict(program.code.words, config, latency=40)
    return figures.cycles, {engine.name: cycles for engine, cycles in figures.busy.items()}


# %% [markdown]
# `search=False` takes the first program that fits, without a search for the fastest one.
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
# On `small` MATRIX works in three of four cycles. With two lanes VECTOR is the limit: more
# multipliers would not help.
# With 16 rows MATRIX needs fewer cycles, and VECTOR becomes the limit.
#
# An ideal array would need the model's products divided by its elements:

# %%
products = 297_280  # of `celosia inspect digits`
cycles = predicted["small"]
assert 0.6 < products / 64 / cycles < 0.75
print(f"{products / 64:,.0f} ideal cycles, {cycles:,} predicted: {products / 64 / cycles:.0%} used")

# %% [markdown]
# Two thirds of the cycles are products. The search of `compile` takes a program with 3 % fewer.
#
# `celosia run digits --config small` counts the cycles on the Verilog, and `celosia trace digits`
# draws each engine's commands over time.
