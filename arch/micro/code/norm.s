; NORM, equation (4): a row's sums, then its normalized values, go through the row buffer.

.registers 25 SUM SQUARES SQUARES_HIGH ADDS WRITES
; Later, in the place of the squares: n, shifted.
.registers 26 SCALED_N
% set high = WORD_WIDTH - IMMEDIATE_WIDTH
% set most, both = 14, 32 + VALUE_FRACTION

; Adds the square under way, of at most 31 bits, and with_kept the one in REST.
% macro add_square(with_kept=False)
    LOW T
% if with_kept
    ADD T, T, REST
% endif
    ADD SQUARES, SQUARES, T
    SLTU T, SQUARES, T
    ADD SQUARES_HIGH, SQUARES_HIGH, T
% endmacro

; Keeps an element, adds it, and begins its square; of a pair's first one the square before goes to REST.
% macro add_element(pair=False, second=True)
    STP WORD_AT, X, 1
% if second
{{ add_square(pair) }}
% else
    LOW REST
% endif
    MUL X, X
    ADD SUM, SUM, X
% endmacro

; Makes a value of the product under way, and gets the next element.
% macro next_value()
    LOW T
    SUB T, T, SUM
    MUL T, X
    LDP T, WORD_AT, 1
    MIDDLE VALUE
    ADDI VALUE, VALUE, 1
    SRAI VALUE, VALUE, 1
% endmacro

op_NORM:
    SIGNAL {{ signal.VECTOR }}
    ANDI ADDS, FLAGS, {{ 2 ** bit("NORM", "add") }}
    ANDI WRITES, FLAGS, {{ 2 ** bit("NORM", "write_sum") }}
; An epilogue knows two of its flags, at the same bits as those of DRAIN.
    MOVE SUM, FLAGS
    ANDI FLAGS, FLAGS, {{ 2 ** bit("NORM", "wide_out") + 2 ** bit("NORM", "per_tensor") }}
    CALL LINK, begin
{{ choose_loop("words_in") }}
    MOVE FLAGS, SUM
    ADD T, n, n
    SUB i_stride, i_stride, T
    SUB r_stride, r_stride, T
    SUB s_stride, s_stride, T
; The two operands' 28 bits each become a word and the bits above it.
    SLLI eps_low, eps_low, {{ high }}
    SRLI eps_low, eps_low, {{ high }}
    SLLI T, eps_high, {{ IMMEDIATE_WIDTH }}
    OR eps_low, eps_low, T
    SLLI eps_high, eps_high, {{ high }}
    SRLI eps_high, eps_high, {{ 2 * high }}

; The row's elements go into the row buffer; they and their squares are added up.
norm_row:
    SET WORD_AT, {{ where.row }}
    MOVE COUNT, n
    MOVE SUM, ZERO
    MOVE SQUARES, ZERO
    MOVE SQUARES_HIGH, ZERO
    MOVE REST, ZERO
    MUL ZERO, ZERO
    OR T, ADDS, WRITES
    BNE T, ZERO, norm_element
% call(second) in_pairs("norm_plain")
    LHP X, i_addr, 2
{{ add_element(True, second) }}
% endcall
    GOTO norm_summed
norm_element:
    LHP X, i_addr, 2
    BEQ ADDS, ZERO, added
    LHP T, r_addr, 2
    ADD X, X, T
    MIN X, X, MOST
    MAX X, X, LEAST
added:
    BEQ WRITES, ZERO, sum_written
    SHP s_addr, X, 2
sum_written:
{{ add_element() }}
    LOOP COUNT, norm_element
norm_summed:
{{ add_square() }}
    UNLESS FLAGS, {{ bit("NORM", "rms") }}, with_mean, T
    MOVE SUM, ZERO
with_mean:

; The mantissa of 1 / sqrt(V) into X and its exponent into RIGHT.
    MUL n, SQUARES
    LOW REST
    MIDDLE VALUE
    MUL n, SQUARES_HIGH
    SRAI VALUE, VALUE, 1
    BGE SQUARES, ZERO, squares
    ADD VALUE, VALUE, n
squares:
    LOW T
    ADD VALUE, VALUE, T
    MUL SUM, SUM
    LOW T
    MIDDLE X
    SRAI X, X, 1
    SLTU RIGHT, REST, T
    SUB REST, REST, T
    SUB VALUE, VALUE, X
    SUB VALUE, VALUE, RIGHT
    ADD REST, REST, eps_low
    SLTU T, REST, eps_low
    ADD VALUE, VALUE, T
    ADD VALUE, VALUE, eps_high
    MOVE X, ZERO
    OR T, VALUE, REST
    BEQ T, ZERO, rooted
    CALL LINK, normalize
; The exponent's parity goes above the fraction.
    SLLI T, RIGHT, 31
    SRLI VALUE, VALUE, 1
    OR VALUE, VALUE, T
    SRAI RIGHT, RIGHT, 1
    ADDI FACTOR, ZERO, rsqrt
    CALL LINK, polynomial
rooted:

; Values in Q.16 of the elements. Bits 31 and up of ((n * s - sum) << left) * (mantissa << more) are twice the value. left is as
; large as values of at most 64 allow, so that the low 32 bits of the difference suffice.
    ADDI T, RIGHT, {{ both - most }}
    MAX T, T, ZERO
    SLL SCALED_N, n, T
    SLL SUM, SUM, T
    ADDI RIGHT, RIGHT, {{ both }}
    SET T, {{ most }}
    MIN T, T, RIGHT
    SLL X, X, T
    SET WORD_AT, {{ where.row }}
    MOVE COUNT, n
    LDP T, WORD_AT, 1
    MUL T, SCALED_N
% if config.requantizer
; Each is requantized at once where it becomes a byte, while the one before is written.
    BNE TAIL, ZERO, norm_value
    MOVE PARAM, params
{{ next_value() }}
{{ scale("VALUE") }}
    MUL T, SCALED_N
    ADDI COUNT, COUNT, -1
    BEQ COUNT, ZERO, last_norm_byte
% call(second) in_pairs("norm_byte")
{{ next_value() }}
{{ scale("VALUE") }}
    SCALEDB o_addr, 1
    MUL T, SCALED_N
% endcall
last_norm_byte:
    SCALEDB o_addr, 1
    GOTO norm_written
% endif
norm_value:
{{ next_value() }}
    MUL T, SCALED_N
    ST WORD_AT, VALUE, -2
    LOOP COUNT, norm_value
    SET WORD_AT, {{ where.row }}
    MOVE COUNT, n
    MOVE PARAM, params
{{ run_loop() }}
norm_written:
    ADD i_addr, i_addr, i_stride
    ADD r_addr, r_addr, r_stride
    ADD s_addr, s_addr, s_stride
{{ next_row("norm_row") }}
    GOTO retire
