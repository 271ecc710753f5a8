; Start, fetch, operands, dispatch, loops, registers. Address 0 is entered once, after a reset, and clears accumulators and
; both registers 0. An instruction is entered at op_NAME with its operands in their registers, and ends at next, or at retire
; if it is the vector engine's.

.registers 7 HEADER WORD VALUE NUMBERS LIST LEFT ENTRY
    ANDI ZERO, ZERO, 0
    ST ZERO, ZERO, {{ where.registers }}
    SET LEFT, {{ config.accumulators.depth }}
clear:
    ADDI WORD, LEFT, -1
    SUMS WORD, ZERO
    LOOP LEFT, clear
idle:
    START PC
    MOVE DEPTH, ZERO
    GOTO next

retire:
    SIGNAL {{ signal.RETIRE }}
next:
    LDP HEADER, PC, 1
    ANDI ENTRY, HEADER, 31
    SLTUI WORD, ENTRY, {{ handlers | length }}
    BEQ WORD, ZERO, fail
    LC WORD, ENTRY, reserved
    AND WORD, WORD, HEADER
    BNE WORD, ZERO, fail
    SRLI FLAGS, HEADER, {{ FLAG_SHIFT }}
    LC LEFT, ENTRY, shapes
    LC ENTRY, ENTRY, handlers
    SRLI LIST, LEFT, {{ COUNT_BITS }}
    ANDI LEFT, LEFT, {{ 2 ** COUNT_BITS - 1 }}
    BEQ LEFT, ZERO, enter
    MOVE NUMBERS, ZERO
operand:
    LDP WORD, PC, 1
    SRLI VALUE, WORD, {{ IMMEDIATE_WIDTH }}
    LD VALUE, VALUE, {{ where.registers }}
    BNE NUMBERS, ZERO, known
    LC NUMBERS, LIST, operands
    ADDI LIST, LIST, 1
known:
    ADD VALUE, VALUE, WORD
    SLLI VALUE, VALUE, {{ WORD_WIDTH - IMMEDIATE_WIDTH }}
    SRAI VALUE, VALUE, {{ WORD_WIDTH - IMMEDIATE_WIDTH }}
    PUT NUMBERS, VALUE
    SRLI NUMBERS, NUMBERS, 8
    LOOP LEFT, operand
enter:
    BACK ENTRY

fail:
    SIGNAL {{ signal.FAIL }}
op_HALT:
    GOTO idle

op_LOOP:
    SLTUI WORD, DEPTH, {{ LOOP_WORDS * LOOP_LEVELS }}
    BEQ WORD, ZERO, fail
    ST DEPTH, PC, {{ where.loops }}
    ST DEPTH, count, {{ where.loops + 1 }}
    ADDI DEPTH, DEPTH, {{ LOOP_WORDS }}
    GOTO next

op_ENDLOOP:
    BEQ DEPTH, ZERO, fail
    LD LEFT, DEPTH, {{ where.loops - 1 }}
    LD WORD, DEPTH, {{ where.loops - 2 }}
    ADDI LEFT, LEFT, -1
    BEQ LEFT, ZERO, loop_over
    ST DEPTH, LEFT, {{ where.loops - 1 }}
    MOVE PC, WORD
    GOTO next
loop_over:
    ADDI DEPTH, DEPTH, {{ -LOOP_WORDS }}
    GOTO next

op_SET:
    ST register, value, {{ where.registers }}
    GOTO next

; Every opcode's handler, operand count and first list, reserved bits; and lists of registers, four a word.
.words handlers {{ handlers | join(" ") }}
.words shapes {{ shapes | join(" ") }}
.words reserved {{ reserved | join(" ") }}
.words operands {{ operands | join(" ") }}
