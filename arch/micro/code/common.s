; Macros of the handlers of vector instructions.

; A loop that runs its body COUNT times, at least once, two times a jump. It changes a register first.
% macro in_pairs(label, spare="T")
    ANDI {{ spare }}, COUNT, 1
    ADDI COUNT, COUNT, 1
    SRLI COUNT, COUNT, 1
    BNE {{ spare }}, ZERO, {{ label }}_odd
{{ label }}:
{{ caller(False) }}
{{ label }}_odd:
{{ caller(True) }}
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
    SCALE PARAM, {{ value }}, {{ PARAM_WORDS }}
% else
    CALL LINK, scale
    ADD PARAM, PARAM, PARAM_STEP
% endif
% endmacro

; The same of the accumulators' next column.
% macro scale_sum()
% if config.requantizer
    SCALESUM PARAM, {{ PARAM_WORDS }}
% else
    SUM X
{{ scale() }}
% endif
% endmacro
