"""The host's registers in SystemRDL 2.0, from which other tools make headers, pages and models."""

from arch.registers import IDENTITY, REGISTER_MAP, Field, Register

NAME = "celosia_registers"
"""Name of the address map."""

_SOFTWARE = {"read": "r", "write": "w", "read/write": "rw"}
_WORD_BYTES = 4


def systemrdl() -> str:
    """Return the SystemRDL text of every register, at byte addresses.

    A register without fields of its own has one, ``VALUE``, of all 32 bits.
    """
    lines = [
        f"addrmap {NAME} {{",
        '    name = "Registers of a Celosia accelerator";',
        "    default regwidth = 32;",
        "    default hw = na;",
        *(line for register in REGISTER_MAP.values() for line in _register(register)),
        "};",
    ]
    return "\n".join(lines) + "\n"


def _register(register: Register) -> list[str]:
    """Return the lines of a register."""
    access = _SOFTWARE[register.access]
    fields = register.fields or (Field("VALUE", 0, 32, register.meaning),)
    reset = f" reset = 32'h{IDENTITY:08x};" if register.name == "ID" else ""
    return [
        "    reg {",
        f'        name = "{register.name}";',
        f'        desc = "{_text(register.meaning)}";',
        *(
            f'        field {{ sw = {access}; desc = "{_text(field.meaning)}";{reset} }} '
            f"{field.name}[{field.low + field.width - 1}:{field.low}];"
            for field in fields
        ),
        f"    }} {register.name} @ 0x{_WORD_BYTES * register.addr:X};",
    ]


def _text(meaning: str) -> str:
    """Return a meaning as the inside of a string of SystemRDL."""
    return meaning.replace("\\", "\\\\").replace('"', '\\"')
