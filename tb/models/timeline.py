"""A recorded run as a timeline in the Trace Event Format, which Perfetto and Chrome show."""

from collections.abc import Iterator, Sequence
from typing import Any

from celosia.arch.isa import Engine
from celosia.tb.machine.recording import SUMS, Command, Recording, Wait
from celosia.tb.models.cycles_by_operation import Operation
from celosia.tb.models.places import Place

Event = dict[str, Any]

_PROCESS = 1
_OPERATIONS, _FIRST_ENGINE = 1, 2
"""Tracks by their place."""

_EXTERNAL = ("loaded", "stored")


def timeline(
    recording: Recording,
    places: Sequence[Place],
    done: Sequence[Operation],
    *,
    title: str,
    mem_bytes: int,
) -> dict[str, Any]:
    """Return a recorded run as a dictionary in the Trace Event Format; 1 microsecond is 1 cycle.

    One track shows the model's operations. Each engine has a track with its commands and its waits
    for other engines. Counters show the array's activity (%), and the bytes per cycle of external
    memory.
    """
    events = list(_names(title))
    for operation in done:
        details = {
            "macs": operation.macs,
            "loaded bytes": operation.loaded,
            "stored bytes": operation.stored,
        }
        for begin, end in operation.spans:
            events.append(_slice(operation.name, _OPERATIONS, begin, end, details))
    for command, place in zip(recording.commands, places, strict=True):
        events.append(_command(command, place))
    for engine in Engine:
        # A wait is drawn only while the engine executes no command.
        events += _waits(recording, engine)
    events += _counters(recording, mem_bytes)
    return {
        "traceEvents": events,
        "displayTimeUnit": "ns",
        "otherData": {"title": title, "cycles": recording.cycles, "unit": "1 us is 1 cycle"},
    }


def _names(title: str) -> Iterator[Event]:
    yield _meta("process_name", 0, name=title)
    for place, name in ((_OPERATIONS, "model"), *_tracks()):
        yield _meta("thread_name", place, name=name)
        yield _meta("thread_sort_index", place, sort_index=place)


def _tracks() -> Iterator[tuple[int, str]]:
    for engine in Engine:
        yield _FIRST_ENGINE + engine, f"{engine.name.lower()} engine"


def _meta(kind: str, track: int, **arguments: Any) -> Event:
    return {"ph": "M", "name": kind, "pid": _PROCESS, "tid": track, "args": arguments}


def _slice(name: str, track: int, begin: int, end: int, arguments: dict[str, Any]) -> Event:
    return {
        "ph": "X",
        "name": name,
        "pid": _PROCESS,
        "tid": track,
        "ts": begin,
        "dur": end - begin,
        "args": arguments,
    }


def _command(command: Command, place: Place) -> Event:
    name = f"{command.opcode.name} {place.tensor}".rstrip()
    arguments: dict[str, Any] = {"tensor": place.tensor} if place.tensor else {}
    if place.part:
        arguments["part"] = place.part
    if command.flags:
        arguments["flags"] = ", ".join(sorted(command.flags))
    arguments |= {
        "in the queue from cycle": command.sent,
        "offered in cycle": command.offered,
        **command.operands,
    }
    event = _slice(name, _FIRST_ENGINE + command.engine, command.begin, command.end, arguments)
    return event | {"cat": command.opcode.name.lower()}


def _waits(recording: Recording, engine: Engine) -> Iterator[Event]:
    """Yield slices for waits during which the engine has no command."""
    commands = [command for command in recording.commands if command.engine == engine]
    waits = [wait for wait in recording.waits if wait.engine == engine]
    place = 0
    for wait in waits:
        begin = wait.begin
        while place < len(commands) and commands[place].end <= begin:
            place += 1
        if place < len(commands) and commands[place].begin <= begin:
            begin = commands[place].end
        if begin < wait.end:
            yield _wait(wait, begin)


def _wait(wait: Wait, begin: int) -> Event:
    names = " and ".join(engine.name.lower() for engine in sorted(wait.lacking))
    event = _slice(f"waits for {names}", _FIRST_ENGINE + wait.engine, begin, wait.end, {})
    return event | {"cat": "wait", "cname": "grey"}


def _counters(recording: Recording, mem_bytes: int) -> Iterator[Event]:
    """Yield the counters' values at each change."""
    before: dict[str, dict[str, float]] = {}
    for index, first in enumerate(range(0, recording.cycles, recording.window)):
        cycles = min(recording.window, recording.cycles - first)
        sums = {name: recording.sums[name][index] for name in SUMS}
        shown = {
            "array (% of cycles)": {
                name.replace("_", " "): round(100 * count / cycles, 1)
                for name, count in sums.items()
                if name not in _EXTERNAL
            },
            "external memory (bytes per cycle)": {
                name: round(mem_bytes * sums[name] / cycles, 2) for name in _EXTERNAL
            },
        }
        for name, values in shown.items():
            if before.get(name) != values:
                before[name] = values
                yield {"ph": "C", "name": name, "pid": _PROCESS, "ts": first, "args": values}
