"""The host link: circuit against golden model, frames against numbers from outside."""

import binascii
import dataclasses
import re

import pytest
from amaranth.lib.crc.catalog import CRC16_IBM_3740

from celosia.arch.link import (
    HELLO_FIELDS,
    STATUS_MEANINGS,
    VERSION,
    Command,
    Identity,
    Status,
    answer,
    crc16,
    fingerprint,
    request,
)
from celosia.arch.presets import PRESETS
from celosia.hdl.link.link import Link
from celosia.hdl.link.request import RequestReceiver
from celosia.sim.link import LinkModel, answers
from celosia.tb.benches.simulate import simulate
from tests.support.longer import is_longer, longer

IDENTITY = Identity(version=VERSION, configuration=77, clock=10**7, memory=5000, payload=64)


def run_case(config, simulator, seed, case=None, **parameters):
    """Simulate the link of a configuration."""
    timeout = 60
    simulate(
        Link(
            config.memory,
            program_depth=config.control.program_depth,
            identity=IDENTITY,
            timeout=timeout,
        ),
        bench="celosia.tb.benches.bench_link",
        testcase=case,
        simulator=simulator,
        seed=seed,
        parameters={
            "config": config.fields(),
            "identity": dataclasses.asdict(IDENTITY),
            "timeout": timeout,
            "requests": 100,
            "stall": 0.3,
            "latency": 10,
        }
        | parameters,
    )


@pytest.mark.parametrize(
    ("simulator", "width"), [("icarus", 8), ("verilator", 128), *longer(("icarus", 32))]
)
def test_requests(simulator, width, request):
    config = PRESETS["tiny"].replace(mem_width=width, mem_addr_width=16, program_depth=100)
    count = 100 if is_longer(request) else 60
    run_case(config, simulator, width, "requests_are_answered", requests=count)


def test_starts_pauses_and_long_answers():
    cases = [
        "a_start_is_not_repeated",
        "a_pause_of_the_timeout_ends_a_request",
        "a_long_answer_is_complete",
    ]
    run_case(PRESETS["tiny"], "icarus", 1, cases)


def test_the_crc_is_that_of_the_catalogue():
    assert crc16(b"123456789") == 0x29B1
    for data in (b"", b"\0", bytes(range(256))):
        assert crc16(data) == CRC16_IBM_3740().compute(data) == binascii.crc_hqx(data, 0xFFFF)


def test_frames_have_a_fixed_form():
    frame = request(Command.WRITE_MEMORY, 7, 2, 0x01020304, b"\xaa\xbb")
    assert frame[:-2].hex() == "5c0507020004030201aabb"
    assert frame[-2:] == binascii.crc_hqx(frame[1:-2], 0xFFFF).to_bytes(2, "big")
    assert answer(Status.OK, 9, b"xyz")[:-2].hex() == "c50009030078797a"
    assert answers(b"\xc5\1" + answer(3, 4) + b"\xc5" + answer(0, 5, b"ab") + b"\xc5") == [
        (3, 4, b""),
        (0, 5, b"ab"),
    ]
    assert set(STATUS_MEANINGS) == set(Status)
    assert tuple(field.name for field in dataclasses.fields(Identity)) == HELLO_FIELDS


def test_fingerprints_tell_configurations_apart():
    fingerprints = {name: fingerprint(config) for name, config in PRESETS.items()}
    assert len(set(fingerprints.values())) == len(PRESETS)
    assert fingerprint(PRESETS["tiny"].replace(name="mine")) == fingerprints["tiny"]
    assert fingerprint(PRESETS["tiny"].replace(rows=5)) != fingerprints["tiny"]


def test_machines_that_fields_came_after_keep_their_fingerprint():
    # As bitstreams tell it that were made before there was scratchpad_align.
    assert fingerprint(PRESETS["tiny"]) == 0x3B5103F0
    small = PRESETS["small"]
    assert fingerprint(small.replace(scratchpad_align=2)) != fingerprint(small)


@pytest.mark.parametrize("size", [16, 100, 65536])
def test_payloads_are_powers_of_two(size):
    message = f"Link payload must be a power of two from 32 to 32768 bytes, not {size}"
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        RequestReceiver(size, 10)


def test_the_golden_link_answers_hello():
    model = LinkModel(IDENTITY, 10, lambda _addr: 0, lambda _addr, _value: None)
    frame = request(Command.HELLO, 3, 20, 0)
    (frames,) = [out for out in map(model.receive, frame) if out]
    payload = answers(frames)[0][2]
    words = [int.from_bytes(payload[place : place + 4], "little") for place in range(0, 20, 4)]
    assert words == IDENTITY.words() == [VERSION, 77, 10**7, 5000, 64]
