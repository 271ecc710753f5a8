"""The microcoded machine's core: its instruction set, memory map, assembler and microcode."""
