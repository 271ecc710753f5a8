; SOFTMAX, equation (3): the columns that are not masked go through the row buffer.

.registers 25 FIRST KEPT WORD WEIGHT_KEPT

; Makes a probability of a word, and gets the next one.
% macro probability()
    MUL WORD, X
    ANDI REST, T, {{ 2 ** WEIGHT_SHIFT - 1 }}
    SUB REST, REST, RIGHT
    MIN REST, REST, SHIFT
    LDP T, WORD_AT, 1
    ANDI WORD, T, {{ -2 ** WEIGHT_SHIFT }}
    MIDDLE VALUE
    SRA VALUE, VALUE, REST
    ADDI VALUE, VALUE, 1
    SRAI VALUE, VALUE, 1
% endmacro

op_SOFTMAX:
    SIGNAL {{ signal.VECTOR }}
; An epilogue knows one of its flags, at the same bit as that of DRAIN.
    MOVE WORD, FLAGS
    ANDI FLAGS, FLAGS, {{ 2 ** bit("SOFTMAX", "per_tensor") }}
    CALL LINK, begin
{{ choose_loop("words_in") }}
    MOVE FLAGS, WORD

softmax_row:
    MAX FIRST, start, ZERO
    MIN FIRST, FIRST, n
    MIN KEPT, limit, n
    SUB KEPT, KEPT, FIRST
    MAX KEPT, KEPT, ZERO
    MOVE PARAM, params
    MOVE COUNT, FIRST
    CALL LINK, fill
    BEQ KEPT, ZERO, masked

; Each weight at octave 0, and its octaves below, become a word; weights are added up, two at a time.
    ADD X, FIRST, FIRST
    ADD X, X, i_addr
    MOVE FACTOR, LEAST
    MOVE COUNT, KEPT
% call(second) in_pairs("largest")
    LHP T, X, 2
    MAX FACTOR, FACTOR, T
% endcall
    SUB X, X, KEPT
    SUB X, X, KEPT
    SET WORD_AT, {{ where.row }}
    SET SHIFT, 31
    MOVE VALUE, ZERO
    MOVE REST, ZERO
    MOVE WEIGHT_KEPT, ZERO
    MOVE COUNT, KEPT
% call(second) in_pairs("weight")
    LHP T, X, 2
    SUB T, FACTOR, T
    SRLI RIGHT, T, {{ OCTAVE_FRACTION }}
    ANDI T, T, {{ 2 ** OCTAVE_FRACTION - 1 }}
    LC T, T, octave
    OR WORD, T, RIGHT
    STP WORD_AT, WORD, 1
    MIN RIGHT, RIGHT, SHIFT ; nothing is left of a weight from 29 octaves on
% if second
    SRL T, T, RIGHT
    ADD T, T, WEIGHT_KEPT
    ADD REST, REST, T
    SLTU T, REST, T
    ADD VALUE, VALUE, T
% else
    SRL WEIGHT_KEPT, T, RIGHT
% endif
% endcall

; Probabilities in Q0.24 of the words, from the sum in VALUE and REST.
    CALL LINK, normalize
    ADDI FACTOR, ZERO, reciprocal
    CALL LINK, polynomial
; weight * inverse * 2**12 / 2**31 is mantissa * inverse / 2**7, of 26 bits.
    SLLI X, X, 12
    ADDI RIGHT, RIGHT, 44
    SET SHIFT, 30
    SET WORD_AT, {{ where.row }}
    MOVE COUNT, KEPT
    LDP T, WORD_AT, 1
    ANDI WORD, T, {{ -2 ** WEIGHT_SHIFT }}
% if config.requantizer
; Each is requantized at once where there is no diagonal, while the one before is written.
    IF FLAGS, {{ bit("SOFTMAX", "diagonal") }}, probability, FACTOR
{{ probability() }}
{{ scale("VALUE") }}
    ADDI COUNT, COUNT, -1
    BEQ COUNT, ZERO, last_share
% call(second) in_pairs("share", "FACTOR")
{{ probability() }}
{{ scale("VALUE") }}
    SCALEDB o_addr, 1
% endcall
last_share:
    SCALEDB o_addr, 1
    GOTO masked
% endif
probability:
{{ probability() }}
    ST WORD_AT, VALUE, -2
    LOOP COUNT, probability
% if not config.requantizer
    UNLESS FLAGS, {{ bit("SOFTMAX", "diagonal") }}, divided, T
% endif
    SUB T, diagonal, FIRST
    BGEU T, KEPT, divided
    SET WORD_AT, {{ where.row }}
    ADD WORD_AT, WORD_AT, T
    LD X, WORD_AT, 0
    ADD X, X, diagonal_value
    ST WORD_AT, X, 0
divided:
    SET WORD_AT, {{ where.row }}
    MOVE COUNT, KEPT
{{ run_loop() }}
masked:
    SUB COUNT, n, FIRST
    SUB COUNT, COUNT, KEPT
    CALL LINK, fill
    ADD start, start, start_step
    ADD limit, limit, limit_step
    ADDI diagonal, diagonal, 1
    ADD i_addr, i_addr, i_stride
{{ next_row("softmax_row") }}
    GOTO retire
