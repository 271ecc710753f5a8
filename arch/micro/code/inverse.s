; The routines that fetch MAP's elements.
byte_in:
    LBP X, i_addr, 1
    SUB X, X, i_zero
    BACK LINK
wide_in:
    LHP X, i_addr, 2
    SUB X, X, i_zero
    BACK LINK

% if config.softmax or config.vector.norm
; Reciprocal and reciprocal square root, equation (7), in two routines.
;
; normalize takes a positive integer of 64 bits in VALUE and REST and returns the exponent of its leading one in RIGHT, and in
; VALUE the bits after that, the first one in bit 31, those behind the last one that counts 0.
normalize:
    SET RIGHT, 63
    BNE VALUE, ZERO, bytes
    MOVE VALUE, REST
    SET RIGHT, 31
bytes:
    SRLI T, VALUE, 24
    BNE T, ZERO, bits
    SRLI T, REST, 24
    SLLI REST, REST, 8
    SLLI VALUE, VALUE, 8
    OR VALUE, VALUE, T
    ADDI RIGHT, RIGHT, -8
    GOTO bytes
bits:
    BLT VALUE, ZERO, leading
shift:
    SRLI T, REST, 31
    ADD REST, REST, REST
    ADD VALUE, VALUE, VALUE
    ADD VALUE, VALUE, T
    ADDI RIGHT, RIGHT, -1
    BGE VALUE, ZERO, shift
leading:
    ADD VALUE, VALUE, VALUE
    ANDI VALUE, VALUE, {{ -2 ** (32 - FRACTION_WIDTH) }}
    BACK LINK

; polynomial takes the operand likewise, of 64 segments of two words, c1 above c2, and c0, and the exponent, halved where it has
; to be; FACTOR holds the address of the segments. It returns the mantissa in X and the result's exponent in RIGHT.
polynomial:
    SRLI T, VALUE, 26
    ADD T, T, T
    ADD T, T, FACTOR
    LC REST, T, 0
    SLLI VALUE, VALUE, 6
    SRLI VALUE, VALUE, 1 ; the place in the segment, of 31 bits
    ANDI X, REST, {{ 2 ** 12 - 1 }}
    MUL X, VALUE
    LC T, T, 1
    SRAI REST, REST, {{ SLOPE_SHIFT }}
    MIDDLE X
    ADD X, X, REST
    MUL X, VALUE
    MIDDLE X
    ADD X, X, T
    SRLI X, X, {{ GUARD_WIDTH }}
    SRLI T, X, {{ MANTISSA_WIDTH }} ; 1 for 2**17, or 0
    SRL X, X, T
    SUB RIGHT, T, RIGHT
    ADDI RIGHT, RIGHT, {{ -MANTISSA_WIDTH }}
    BACK LINK
% endif

% if config.softmax
; SOFTMAX's tables, and zero points for COUNT columns, maybe none.
.words octave {{ octave | join(" ") }}
.words reciprocal {{ reciprocal | join(" ") }}
fill:
    BEQ COUNT, ZERO, filled
fill_bytes:
    SBP o_addr, o_zero, 1
    ADD PARAM, PARAM, PARAM_STEP
    LOOP COUNT, fill_bytes
filled:
    BACK LINK
% endif
% if config.vector.norm
.words rsqrt {{ rsqrt | join(" ") }}
% endif
