"""The machine of a configuration, whichever it is."""

from celosia.arch.config import Config
from celosia.hdl.accelerator import Accelerator
from celosia.hdl.micro.machine import MicroMachine


def machine_component(config: Config) -> Accelerator | MicroMachine:
    """Return the component that runs a configuration's programs; its ports are ``MachinePorts``."""
    return MicroMachine(config) if config.micro is not None else Accelerator(config)
