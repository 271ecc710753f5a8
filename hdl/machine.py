"""Makes the accelerator that a configuration describes, with engines or with microcode."""

from celosia.arch.arguments import checked
from celosia.arch.config import Config
from celosia.hdl.accelerator import Accelerator
from celosia.hdl.micro.machine import MicroMachine


@checked()
def machine_component(config: Config) -> Accelerator | MicroMachine:
    """Return the accelerator of a configuration, with the ports :class:`MachinePorts`.

    It is a :class:`MicroMachine` if the configuration has microcode, else an :class:`Accelerator`.
    """
    return MicroMachine(config) if config.micro is not None else Accelerator(config)
