# %% [markdown]
# # A first model
#
# You load a trained Transformer, compile it for a machine of 4x4 multipliers, and compare its
# integers with its floats.
# The model reads 256 samples of an accelerometer as 16 rows of 16, and chooses one of five faults.
# Run it in the root of a checkout.

# %%
import numpy as np

import celosia

folder = "examples/vibration"
model = celosia.load(f"{folder}/vibration.onnx")
calibration = np.load(f"{folder}/calibration.npy")
windows = np.load(f"{folder}/inputs.npy")
labels = np.load(f"{folder}/labels.npy")

# %% [markdown]
# `compile` quantizes the model to 8 bits with the ranges of the calibration inputs, and lowers it
# to a program.
# The cycles are predicted, with an external memory of 40 cycles to the first word.

# %%
program = celosia.compile(model, celosia.config("tiny"), calibration=calibration)
print(program)

# %% [markdown]
# ```text
# | configuration    | tiny      |
# | bytes            | 17,200    |
# ```
#
# `run` executes the program on the golden machine, which computes every integer of the circuit.
# Each tensor is compared with the integer reference: `mismatches` must be 0.

# %%
run = program.run(windows[:20])
print(run)
assert run.mismatches == 0

# %% [markdown]
# `floats` runs the original model. The predictions agree if the largest output is in the same
# place.

# %%
integers = [int(output.argmax()) for output in run.outputs]
floats = [int(output.argmax()) for output in model.floats(windows[:20])]
print("integers right:", sum(integers == labels[:20]), "of 20")
print("floats right:  ", sum(floats == labels[:20]), "of 20")

# %% [markdown]
# ```text
# integers right: 18 of 20
# floats right:   19 of 20
# ```
#
# `program.run(windows, on="verilator")` runs the same program on the generated Verilog and counts
# cycles.
