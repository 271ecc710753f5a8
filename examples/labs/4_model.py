# %% [markdown]
# # Lab 4: a whole model
#
# A Transformer that reads handwritten digits runs on a machine of your choice. You predict,
# quantize and compare.

# %%
import celosia

model = celosia.load("digits")
images = model.examples(8)
program = celosia.compile(model, celosia.config("small"), search=False)
run = program.run(images)
int4 = celosia.compile(model, celosia.config("small"), weights="int4", search=False)
print(program)
print(int4)
print("mismatches:", run.mismatches)

# %% [markdown]
# ## Exercise 1
#
# Each output has ten numbers. Write the function that gives the predicted digit, and compare
# integers with floats.


# %% tags=["exercise"]
def digit(output):
    """Return the digit of an output of shape [1, 10]."""
    ...


# %% tags=["check"]
integers = [digit(output) for output in run.outputs]
floats = [digit(output) for output in model.floats(images)]
assert all(0 <= number <= 9 for number in integers)
assert sum(a == b for a, b in zip(integers, floats, strict=True)) >= 7

# %% [markdown]
# ## Exercise 2
#
# `small` has 8 rows, 8 columns and 8 lanes in the vector engine. Change fields so that an
# inference takes at most 6,000 cycles
# with at most 128 elements (rows times columns). `docs/configuration.md` has all fields.

# %% tags=["exercise"]
fields = {}

# %% tags=["check"]
config = celosia.config("small", **fields)
faster = celosia.compile(model, config, search=False)
assert config.array.rows * config.array.cols <= 128
assert faster.cycles <= 6000, faster.cycles

# %% [markdown]
# ## Exercise 3
#
# A machine with a clock of 80 MHz runs `small`'s program. How many digits does it classify in a
# second?
# How many bytes do 4-bit weights save (`int4`)?

# %% tags=["exercise"]
digits_per_second = ...
saved_bytes = ...

# %% tags=["check"]
assert abs(digits_per_second / (80e6 / program.cycles) - 1) < 0.01
assert saved_bytes == program.bytes - int4.bytes > 0
