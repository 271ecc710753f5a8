"""The registers in front of the requantizers of all lanes."""

from collections.abc import Sequence

from amaranth.hdl import Module, Value
from amaranth.lib import data

from hdl.stream.pipeline import delay


def entering(
    m: Module, beat: data.View, words: Sequence, *, taken: Value, sleep: bool
) -> tuple[list[Value], list]:
    """Return each lane's value of the beat taken two cycles ago, and its parameters.

    ``words`` are the lanes' parameters, two cycles after their beat was taken, and with ``sleep``
    one. A lane that has no element in a beat then keeps value and parameters of the one before, so
    that nothing behind them moves.
    """
    values, params = [], []
    for lane, word in enumerate(words):
        ahead, behind, held = 1, 1, word
        if sleep:
            ahead = taken & beat.keep[lane]
            behind = delay(m, ahead, 1, reset=True)
            held = data.View(word.shape(), delay(m, word, 1, en=behind))
        entered = delay(m, beat.value[lane], 1, en=ahead)
        values.append(delay(m, entered, 1, en=behind))
        params.append(held)
    return values, params
