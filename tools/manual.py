"""The instruction set's manual page, made from its definition."""

from celosia.arch.isa import DEFINITIONS, OPERAND_MEANINGS, Definition
from celosia.arch.isa import __doc__ as _isa_summary

_HEAD = """# Instruction set

This page is made from `arch/isa.py`: `python -m tools.manual > docs/isa.md`.

"""


def manual() -> str:
    """Return the manual page as Markdown."""
    assert _isa_summary is not None
    words = _isa_summary.partition("\n\n")[2].replace("``", "`")
    body = "\n".join(_section(definition) for definition in DEFINITIONS.values())
    operands = "".join(f"| `{name}` | {text} |\n" for name, text in OPERAND_MEANINGS.items())
    return _HEAD + (
        f"{words}\n## Operands\n\n| operand | meaning |\n|---|---|\n{operands}\n"
        f"## Instructions\n\n{body}"
    ).replace("*", r"\*")


def _section(definition: Definition) -> str:
    engine = definition.engine.name if definition.engine is not None else "sequencer"
    needs = f", needs `{definition.unit}`" if definition.unit else ""
    summary, *clauses = definition.summary.split("; ")
    lines = [
        f"### {definition.opcode.name}\n",
        f"Opcode {int(definition.opcode)}, {engine}, {definition.words} words{needs}: {summary}.\n",
    ]
    if clauses:
        lines.append("".join(f"- {clause}.\n" for clause in clauses))
    if definition.operands:
        lines.append(f"Operands: {', '.join(f'`{name}`' for name in definition.operands)}.\n")
    if definition.flags:
        flags = (f"{definition.flag_bit(name)} `{name}`" for name in definition.flags)
        lines.append(f"Bits of the flags: {', '.join(flags)}.\n")
    return "\n".join(lines)


if __name__ == "__main__":
    print(manual(), end="")
