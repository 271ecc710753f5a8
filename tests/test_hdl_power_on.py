"""Power-on from flash: circuit against golden model, good images and ones with a flipped bit."""

import dataclasses
import re

import numpy as np
import pytest
from amaranth.sim import Simulator

from celosia.arch.link import (
    ANSWER_HEADER,
    Command,
    Status,
    request,
)
from celosia.arch.power_on import CRC_BYTES, HEADER_BYTES, REFUSALS, Op, Refusal, record, seal
from celosia.hdl.flash.power_on import PowerOn
from celosia.sim.power_on import power_on
from celosia.tb.devices.linked_host import ADDR, CONFIG, IDENTITY, SIZE, Host

RUN_CYCLES = 70


def play(contents, seed, size, host, late=0):
    """Return text, refused, and the reads of a circuit that powers on with a flash's contents.

    The link answers ``late`` cycles later than it could.
    """
    unit = PowerOn(IDENTITY.configuration, ADDR, size)
    rng, text = np.random.default_rng(seed), b""
    reads, gone = [], []

    async def flash(ctx):
        while True:
            ctx.set(unit.o_read.ready, 1)
            _, _, valid, read = await ctx.tick().sample(unit.o_read.valid, unit.o_read.payload)
            ctx.set(unit.o_read.ready, 0)
            if not valid:
                continue
            reads.append((read.addr, read.last + 1))
            for place in range(read.addr, read.addr + read.last + 1):
                for _ in range(rng.integers(3)):
                    await ctx.tick()
                ctx.set(unit.i.valid, 1)
                ctx.set(unit.i.payload, contents[place - ADDR])
                while not (await ctx.tick().sample(unit.i.ready))[2]:
                    pass
                ctx.set(unit.i.valid, 0)

    async def link(ctx):
        frame, quiet = b"", 0
        while True:
            _, _, valid, byte = await ctx.tick().sample(
                unit.request.valid, unit.request.payload.byte
            )
            frame, quiet = (frame + bytes([byte]), 0) if valid else (frame, quiet + 1)
            if not frame or (quiet < 30):
                continue
            begun = host.begun
            answer = host.ask(frame)
            frame = b""
            for _ in range(late):
                await ctx.tick()
            if host.begun > begun:
                ctx.set(unit.status, 1)
            for each in answer:
                for _ in range(rng.integers(3)):
                    await ctx.tick()
                ctx.set(unit.i_answer.valid, 1)
                ctx.set(unit.i_answer.payload, each)
                while not (await ctx.tick().sample(unit.i_answer.ready))[2]:
                    pass
                ctx.set(unit.i_answer.valid, 0)
            if host.begun > begun:
                gone.append(True)

    async def run(ctx):
        while True:
            await ctx.tick()
            if gone:
                gone.pop()
                await ctx.tick().repeat(RUN_CYCLES)
                ctx.set(unit.status, host.status)

    async def bench(ctx):
        nonlocal text
        for _ in range(6000):
            ready = bool(rng.integers(2))
            ctx.set(unit.o.ready, ready)
            _, _, valid, byte, active = await ctx.tick().sample(
                unit.o.valid, unit.o.payload, unit.active
            )
            text += bytes([byte]) * (valid and ready)
            if not active:
                break
        assert not ctx.get(unit.active)
        refused.append(ctx.get(unit.refused))

    refused = []
    simulator = Simulator(unit)
    simulator.add_clock(1e-6)
    for process in (flash, link, run):
        simulator.add_testbench(process, background=True)
    simulator.add_testbench(bench)
    simulator.run()
    return text, bool(refused[0]), reads


def compare(contents, seed, status=0, *, size=SIZE, answers=None, late=0):
    """Compare a power-on with the golden one, and return that and the circuit's host."""
    contents += bytes(size - ADDR - len(contents))
    golden, host = Host(status, answers), Host(status, answers)
    wanted = power_on(
        contents, size - ADDR, IDENTITY.configuration, golden.ask, lambda: golden.status
    )
    text, refused, reads = play(contents, seed, size, host, late)
    assert text == wanted.text
    assert refused == (wanted.refusal is not None)
    assert host.asked == golden.asked
    assert host.link.memory == golden.link.memory
    return wanted, host, reads


def asked(command, tag, length, addr, data=b""):
    return record(Op.REQUEST, request(command, tag, length, addr, data)[1:])


SCORES = np.array([-32768, 300, 5, 300, 299], "<i2").tobytes()
CHOICES = b"".join(
    request(Command.WRITE_MEMORY, 9, 3, 40 + each, bytes([each] * 3)).ljust(16, b"\0")
    for each in range(5)
)
NAMES = b"".join(name.ljust(16, b"\0") for name in (b"a", b"some words", b"c", b"d", b"e"))
GOOD = (
    asked(Command.WRITE_MEMORY, 1, len(SCORES), 7, SCORES)
    + record(Op.TEXT, b"ok ")
    + asked(Command.START, 2, 0, 0)
    + record(Op.WAIT)
    + asked(Command.READ_MEMORY, 3, len(SCORES), 7)
    + record(Op.LABEL, NAMES)
    + record(Op.CHOICE, CHOICES)
    + record(Op.TEXT, b"!\r\n")
)
IMAGE = seal(CONFIG, GOOD + record(Op.END))


def test_an_image_is_carried_out():
    for seed in range(3):
        wanted, host, reads = compare(IMAGE, seed)
        assert (wanted.text, wanted.refusal) == (b"ok some words!\r\n", None)
        assert host.begun == 1
        assert host.link.memory[41:44] == b"\1\1\1"
        assert reads == [
            (ADDR, HEADER_BYTES),
            (ADDR, len(IMAGE)),
            (ADDR + HEADER_BYTES, len(IMAGE) - HEADER_BYTES - CRC_BYTES),
        ]


@pytest.mark.parametrize("place", [0, 3, 4, 7, 8, 11, 12, 40, len(IMAGE) - 5, len(IMAGE) - 1])
def test_nothing_of_an_image_with_a_flipped_bit_is_done(place):
    damaged = bytearray(IMAGE)
    damaged[place] ^= 1 << place % 8
    wanted, host, _ = compare(bytes(damaged), place)
    reason = Refusal.NONE if place < 4 else Refusal.OTHER if place < 8 else Refusal.CORRUPT
    assert (wanted.text, wanted.refusal) == (REFUSALS[reason], reason)
    assert not host.asked


@pytest.mark.parametrize(
    "body",
    [
        asked(Command.WRITE_MEMORY, 1, 2, 63, b"no"),  # behind the memory
        record(Op.TEXT, b"a") + bytes([9, 0, 0]),  # no such record
        record(Op.TEXT, b"a"),  # no end
        record(Op.TEXT, b"ab")[:-1],
        record(Op.LABEL, b"ab")[:-1],
        record(Op.TEXT, b"ab")[:2],
        asked(Command.READ_MEMORY, 3, 2, 7) + record(Op.CHOICE, b""),
        record(Op.CHOICE, CHOICES)[:-3],
        record(Op.CHOICE, CHOICES.replace(b"\x01\x01\x01", b"\x01\x01\x02")[16:32]),
        asked(Command.WRITE_MEMORY, 1, 2, 0, b"ab")[:-3],
    ],
)
def test_an_image_that_cannot_be_carried_out_is_stopped(body):
    wanted, _, _ = compare(seal(CONFIG, body), 1)
    assert wanted.refusal == Refusal.STOPPED


@pytest.mark.parametrize("status", [status for status in Status if status != Status.OK])
@pytest.mark.parametrize("number", [0, 2, 3])
def test_an_answer_with_an_error_stops_the_image(number, status):
    def answers(at, answer):
        return answer[:1] + bytes([status]) + answer[2:] if at == number else answer

    wanted, host, _ = compare(IMAGE, 1, answers=answers)
    assert wanted.refusal == Refusal.STOPPED
    assert len(host.asked) == number + 1


def test_an_answer_that_comes_late_is_waited_for():
    wanted, _, _ = compare(IMAGE, 2, late=400)
    assert (wanted.text, wanted.refusal) == (b"ok some words!\r\n", None)


def test_another_answer_has_another_text():
    def answers(at, answer):
        start = 1 + ANSWER_HEADER
        return answer[:start] + b"\1\x7f" + answer[start + 2 :] if at == 2 else answer

    wanted, host, _ = compare(IMAGE, 3, answers=answers)
    assert wanted.text == b"ok a!\r\n"
    assert host.link.memory[40:43] == bytes(3)


def test_an_image_may_fill_the_flash_and_not_more():
    wanted, _, _ = compare(IMAGE, 1, size=ADDR + len(IMAGE))
    assert wanted.refusal is None
    wanted = power_on(IMAGE, len(IMAGE) - 1, IDENTITY.configuration, bytes, int)
    assert wanted.refusal == Refusal.CORRUPT
    text, refused, _ = play(IMAGE, 1, ADDR + len(IMAGE) - 1, Host())
    assert (text, refused) == (wanted.text, True)


def test_a_run_with_an_error_is_told():
    wanted, host, _ = compare(IMAGE, 1, status=2)
    assert wanted.text == b"ok " + REFUSALS[Refusal.STOPPED]
    assert len(host.asked) == 2


def test_another_machines_image_and_an_empty_one_are_refused():
    wanted, _, _ = compare(seal(CONFIG.replace(rows=5), GOOD), 1)
    assert wanted.refusal == Refusal.OTHER
    assert compare(seal(CONFIG, b""), 1)[0].refusal == Refusal.CORRUPT
    assert compare(b"\xff" * 20, 1)[0].refusal == Refusal.NONE


def test_a_record_has_two_bytes_of_length():
    message = "A record of an image must have below 65536 bytes, not 65536"
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        record(Op.TEXT, bytes(65536))
    assert all(len(line) <= 32 for line in REFUSALS.values())
    assert dataclasses.is_dataclass(power_on(b"", 99, 0, bytes, int))
