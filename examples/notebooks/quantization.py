# %% [markdown]
# # The cost of quantization
#
# Integers differ from floats. You measure the difference layer by layer, and choose the option
# that lowers it.

# %%
import numpy as np

import celosia

folder = "examples/vibration"
model = celosia.load(f"{folder}/vibration.onnx")
calibration = np.load(f"{folder}/calibration.npy")
windows = np.load(f"{folder}/inputs.npy")[:4]
config = celosia.config("tiny")


def compiled(**options):
    return celosia.compile(model, config, calibration=calibration, **options)


# %% [markdown]
# With 4-bit weights the memory shrinks, and the error grows. `error` is relative to the layer's
# float values;
# `error with it` is the error with the named option of `compile`.

# %%
int4 = compiled(weights="int4")
print(int4.compare(windows))

# %% [markdown]
# ```text
# | layer     | error   | option         | error with it |
# | embedding | 0.06897 | weights='int8' | 0.01275       |
# ```
#
# The 8-bit weights lower the error of every layer. The 16-bit activations of `activations="mixed"`
# lower it further:

# %%
rows = [("int4", int4), ("int8", compiled()), ("mixed", compiled(activations="mixed"))]
print(f"{'options':8} {'bytes':>6} {'cycles':>7} {'worst error':>12}")
for name, program in rows:
    run = program.run(windows)
    assert run.mismatches == 0
    pairs = zip(run.outputs, model.floats(windows), strict=True)
    worst = max(float(np.abs(output - exact).max()) for output, exact in pairs)
    print(f"{name:8} {program.bytes:6,} {program.cycles:7,} {worst:12.3f}")

# %% [markdown]
# The last column is the largest difference of an output (a logit). Each step takes more memory,
# and the last one more cycles.
# Measure the accuracy before you pay for either: `celosia evaluate` has labels, `--quantize` has
# all formats.
