; The end of every vector instruction: equations (1) and (2) over a row of values.
;
; There is a loop for each front, which puts the next value into X, and tail, which writes what has become of a value. While a
; value is requantized, the next one and its parameters are fetched. words_in takes the data words from WORD_AT on, sums_in
; accumulators, map_in what the routine in ELEMENT_IN fetches. A loop takes COUNT values, at least one, whose first parameters
; are at PARAM, and moves o_addr on.
% set TAILS = ["byte", "wide", "sum", "table"]
% set tails = TAILS if config.activation else TAILS[:-1]

; The next value into X, and its requantization begun.
% macro fetch(front, name)
% if front == "sums_in"
    LOOP LEFT, {{ name }}
    MOVE LEFT, COLUMNS
    SUMS TILE, acc_stride
{{ name }}:
{{ scale_sum() }}
% else
% if front == "words_in"
    LDP X, WORD_AT, 1
% else
    JUMP LINK, ELEMENT_IN, 0
% endif
{{ scale() }}
% endif
% endmacro

; Writes the oldest value that has been requantized, which is taken before the next is there.
% macro write(tail)
% if config.requantizer and tail == "byte"
    SCALEDB o_addr, 1
% else
% if config.requantizer
    SCALED VALUE
% endif
% if tail == "byte"
    SBP o_addr, VALUE, 1
% elif tail == "table"
    SRAI T, VALUE, 2
    ADD T, T, table
    LD T, T, {{ TABLE_WORDS // 2 }} ; entry 0 is that of -128
    SLLI VALUE, VALUE, 3
    SRL T, T, VALUE
    SBP o_addr, T, 1
% else
% if tail == "sum"
    LHP T, r_addr, 2
    ADD VALUE, VALUE, T
    MIN VALUE, VALUE, MOST
    MAX VALUE, VALUE, LEAST
% endif
    SHP o_addr, VALUE, 2
% endif
% endif
% endmacro

; A loop of COUNT tiles, each of them without a jump.
% macro tile_loop(tail)
tiles_in_{{ tail }}:
    SUMS TILE, acc_stride
{{ scale_sum() }}
    GOTO tiles_in_{{ tail }}_rest
tiles_in_{{ tail }}_next:
    SUMS TILE, acc_stride
{{ scale_sum() }}
{{ write(tail) }}
tiles_in_{{ tail }}_rest:
% for _ in range(config.array.cols - 1)
{{ scale_sum() }}
{{ write(tail) }}
% endfor
    LOOP COUNT, tiles_in_{{ tail }}_next
{{ write(tail) }}
    BACK LINK2
% endmacro

% macro row_loop(front, tail)
% set name = front ~ "_" ~ tail
{{ name }}:
% if config.requantizer
{{ fetch(front, name ~ "_first") }}
    LOOP COUNT, {{ name }}_next
    GOTO {{ name }}_last
{{ name }}_next:
{{ fetch(front, name ~ "_value") }}
{{ write(tail) }}
    LOOP COUNT, {{ name }}_next
{{ name }}_last:
{{ write(tail) }}
% else
{{ fetch(front, name ~ "_value") }}
{{ write(tail) }}
    LOOP COUNT, {{ name }}
% endif
    BACK LINK2
% endmacro

; Makes everything ready for an instruction whose flags are in FLAGS: params becomes a data address, o_stride the way from
; behind a row to the next one, r_stride likewise where add makes the tail read it, and TAIL the tail's number.
begin:
    SET MOST, 32767
    SET LEAST, -32768
    SET T, {{ where.params }}
    ADD T, T, params
    SLLI params, params, 1
    ADD params, params, T
    MOVE ROW_STEP, ZERO
    SET PARAM_STEP, {{ PARAM_WORDS }}
    UNLESS FLAGS, {{ bit("DRAIN", "per_tensor") }}, each_column, T
    MOVE PARAM_STEP, ZERO
each_column:
    IF FLAGS, {{ bit("DRAIN", "wide_out") }}, wide, T
    SUB o_stride, o_stride, n
    SET LOWEST, {{ config.operand_min }}
    SET HIGHEST, {{ config.operand_max }}
    SET TAIL, {{ TAILS.index("byte") }}
% if config.activation
    UNLESS FLAGS, {{ bit("DRAIN", "table") }}, bounds, T
    SLLI table, table, {{ log2(TABLE_WORDS) }}
    SET T, {{ where.tables }}
    ADD table, table, T
    SET TAIL, {{ TAILS.index("table") }}
% endif
    GOTO bounds
wide:
    SLLI T, n, 1
    SUB o_stride, o_stride, T
    MOVE LOWEST, LEAST
    MOVE HIGHEST, MOST
    SET TAIL, {{ TAILS.index("wide") }}
    UNLESS FLAGS, {{ bit("DRAIN", "add") }}, bounds, REST
    SUB r_stride, r_stride, T
    SET TAIL, {{ TAILS.index("sum") }}
bounds:
    UNLESS FLAGS, {{ bit("DRAIN", "relu") }}, begun, T
    MAX LOWEST, LOWEST, o_zero
begun:
% if config.requantizer
    SLLI HIGHEST, HIGHEST, 16
    SLLI LOWEST, LOWEST, 16
    SRLI LOWEST, LOWEST, 16
    OR LOWEST, LOWEST, HIGHEST
    SLLI T, PARAM_STEP, 16 ; 1 in bit 16, or 0
    ADD T, T, o_zero
    BOUNDS LOWEST, T
    BACK LINK
% else
    SUB LOWEST, LOWEST, o_zero
    SUB HIGHEST, HIGHEST, o_zero
    BACK LINK

; Makes VALUE of X. Where the product's upper part would be 2**31, it is taken as 2**31 - 1, which neither a right shift nor a
; clamp to 16 bits can tell from it.
scale:
    LD SHIFT, PARAM, 2
    LD T, PARAM, 0
    LD FACTOR, PARAM, 1
    ADD X, X, T
    BLT SHIFT, ZERO, scale_product
    SLL X, X, SHIFT
scale_product:
    MUL X, FACTOR
    SUB RIGHT, ZERO, SHIFT
    ADDI RIGHT, RIGHT, -1
    LOW T
    MIDDLE VALUE
    SLLI T, T, 1
    SRLI T, T, 31
    ADD VALUE, VALUE, T ; rounded
    BLT RIGHT, ZERO, scale_alone
    SRAI T, VALUE, 31
    ADD VALUE, VALUE, T
    SRA VALUE, VALUE, RIGHT
    SRAI T, VALUE, 1
    SUB VALUE, VALUE, T ; half of it, rounded up, without overflow
scale_clamp:
    MAX VALUE, VALUE, LOWEST
    MIN VALUE, VALUE, HIGHEST
    ADD VALUE, VALUE, o_zero
    BACK LINK
scale_alone:
    ADDI T, VALUE, -1 ; only from 2**31, which has wrapped, to something larger
    MAX VALUE, VALUE, T
    GOTO scale_clamp
% endif

% if whole_tiles
.words tiles_in {% for tail in tails %}tiles_in_{{ tail }} {% endfor %}

% for tail in tails
{{ tile_loop(tail) }}
% endfor
% endif
% for front in ["sums_in", "map_in"] + (["words_in"] if config.softmax or config.vector.norm else [])
% set wanted = TAILS[:2] if front == "words_in" else tails
.words {{ front }} {% for tail in wanted %}{{ front }}_{{ tail }} {% endfor %}

% for tail in wanted
{{ row_loop(front, tail) }}
% endfor
% endfor
