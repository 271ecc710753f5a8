; Macros of the handlers of vector instructions.

; A loop that runs its body COUNT times, at least once, two times a jump. It changes T first.
% macro in_pairs(label)
    ANDI T, COUNT, 1
    ADDI COUNT, COUNT, 1
    SRLI COUNT, COUNT, 1
    BNE T, ZERO, {{ label }}_odd
{{ label }}:
{{ caller() }}
{{ label }}_odd:
{{ caller() }}
    LOOP COUNT, {{ label }}
% endmacro

; On to the next row at a label, or past the last one.
% macro next_row(label)
    ADD o_addr, o_addr, o_stride
    LOOP m, {{ label }}
% endmacro

; The address of a front's loop with the instruction's tail.
% macro choose_loop(front)
    LC LOOP_AT, TAIL, {{ front }}
% endmacro

; A row's values.
% macro run_loop()
    JUMP LINK2, LOOP_AT, 0
% endmacro

; Begins a value's requantization; without a requantizer it makes VALUE of X.
% macro scale(value="X")
% if config.requantizer
    SCALE {{ value }}, PARAM
% else
    CALL LINK, scale
% endif
    ADD PARAM, PARAM, PARAM_STEP
% endmacro

; Writes the oldest requantized byte.
% macro write_byte(value)
    SCALED {{ value }}
    SBP o_addr, {{ value }}, 1
% endmacro
