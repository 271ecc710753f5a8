"""A model of the host link and a machine, for the requests of a power-on image."""

from celosia.arch.link import VERSION, Identity, fingerprint
from celosia.arch.presets import PRESETS
from celosia.arch.registers import REGISTER_MAP
from celosia.sim.link import LinkModel

CONFIG = PRESETS["tiny"]
IDENTITY = Identity(
    version=VERSION, configuration=fingerprint(CONFIG), clock=10**7, memory=64, payload=64
)
ADDR, SIZE = 0x1000, 0x2000


class Host:
    """A model of the host link, and of a machine that executes no program but counts its runs.

    ``status`` is the STATUS at the end of a run. ``answers(number, answer)`` may change the answer
    to the request with that number. ``begun`` is the number of runs that were started, ``asked``
    the list of requests.
    """

    def __init__(self, status=0, answers=None):
        self.status, self.begun, self.asked = status, 0, []
        self.answers = answers or (lambda _number, answer: answer)
        self.link = LinkModel(IDENTITY, 8, lambda _addr: 0, self._write)

    def _write(self, addr, value):
        if addr == REGISTER_MAP["CONTROL"].addr and value == 1:
            self.begun += 1

    def ask(self, frame):
        """Return the link's answer to a request; CORRUPT if the request is incomplete."""
        self.asked.append(frame)
        reply = b"".join(map(self.link.receive, frame))
        return self.answers(len(self.asked) - 1, reply or self.link.quiet())
