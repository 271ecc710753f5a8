"""A model of the host link and of the accelerator that it controls, for tests of power-on.

At power-on, a circuit sends requests from a flash image to the host link. The model answers these
requests.
"""

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
    """A model of the host link, and of a machine that counts its runs but executes no program.

    ``status`` is the value of the machine's register STATUS. ``begun`` is the number of runs.
    ``asked`` is a list of the requests. The function ``answers(number, answer)``, if given, returns
    the answer to send to request ``number`` (from 0 on).
    """

    def __init__(self, status=0, answers=None):
        self.status, self.begun, self.asked = status, 0, []
        self.answers = answers or (lambda _number, answer: answer)
        self.link = LinkModel(IDENTITY, 8, lambda _addr: 0, self._write)

    def _write(self, addr, value):
        if addr == REGISTER_MAP["CONTROL"].addr and value == 1:
            self.begun += 1

    def ask(self, frame):
        """Send a request (bytes) to the link, and return the answer (bytes).

        If the request is incomplete, the answer's status is CORRUPT.
        """
        self.asked.append(frame)
        reply = b"".join(map(self.link.receive, frame))
        return self.answers(len(self.asked) - 1, reply or self.link.quiet())
