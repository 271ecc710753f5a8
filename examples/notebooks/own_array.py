# %% [markdown]
# # An array in your own design
#
# The systolic array is an Amaranth component. You put it into a design that finds the largest of
# four dot products.

# %%
import numpy as np
from amaranth.back import verilog
from amaranth.hdl import Module, Mux
from amaranth.lib import wiring
from amaranth.lib.wiring import Out, connect, flipped
from amaranth.sim import Simulator

import celosia


class Nearest(wiring.Component):
    """The index of the largest dot product of an activation row with four weight columns."""

    def __init__(self):
        self.array = celosia.hdl.SystolicArray(rows=4, cols=4)
        members = self.array.signature.members
        super().__init__(
            {
                "weights": members["i_weights"],
                "query": members["i"],
                "index": Out(2),
                "valid": Out(1),
            }
        )

    def elaborate(self, _platform):
        m = Module()
        m.submodules.array = array = self.array
        connect(m, flipped(self.weights), array.i_weights)
        connect(m, flipped(self.query), array.i)
        best, index = array.o.payload[0], 0
        for column in range(1, 4):
            larger = array.o.payload[column] > best
            best, index = Mux(larger, array.o.payload[column], best), Mux(larger, column, index)
        m.d.comb += [self.index.eq(index), self.valid.eq(array.o.valid)]
        return m


# %% [markdown]
# A testbench writes the weights row by row, then sends three queries. The array has a fixed
# latency and takes a row in each cycle.

# %%
columns = np.array([[20, 3, -8, 5], [-4, 9, 1, 7], [2, 2, 2, 2], [16, -3, 5, 1]])
queries = np.array([[9, -4, 6, 3], [-5, 7, 0, 2], [1, 1, 9, 1]])
dut, results = Nearest(), []


async def bench(ctx):
    for row, weights in enumerate(columns.T):
        ctx.set(dut.weights.payload, {"data": weights.tolist(), "index": row})
        ctx.set(dut.weights.valid, 1)
        await ctx.tick()
    ctx.set(dut.weights.valid, 0)
    for query in queries:
        ctx.set(dut.query.payload, {"a": query.tolist()})
        ctx.set(dut.query.valid, 1)
        await ctx.tick()
    ctx.set(dut.query.valid, 0)


async def monitor(ctx):
    async for *_, valid, index in ctx.tick().sample(dut.valid, dut.index):
        if valid:
            results.append(index)
        if len(results) == len(queries):
            break


simulator = Simulator(dut)
simulator.add_clock(1e-6)
simulator.add_testbench(bench)
simulator.add_testbench(monitor)
simulator.run()
print(results)

# %% [markdown]
# The golden model is a NumPy function with the same integers:

# %%
scores = celosia.golden.matmul(queries, columns.T)
assert results == scores.argmax(axis=1).tolist()
print(scores)

# %% [markdown]
# The design is Verilog after one call of Amaranth:

# %%
text = verilog.convert(dut, emit_src=False)
print(f"{text.count('endmodule')} modules")
