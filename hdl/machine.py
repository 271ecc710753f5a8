"""The machine of any configuration."""

from celosia.arch.config import Config
from celosia.hdl.accelerator import Accelerator
from celosia.hdl.micro.machine import MicroMachine


def machine_component(config: Config) -> Accelerator | MicroMachine:
    """Return the machine of a configuration, microcoded or not; its ports are ``MachinePorts``."""
    return MicroMachine(config) if config.micro is not None else Accelerator(config)
