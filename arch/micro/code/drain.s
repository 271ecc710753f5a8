; DRAIN and MAP, and the registers of all that follows.
;
; Registers 7 to 31 are free: their values mean nothing to the next instruction. COUNT and PARAM are a loop's number of values
; and their first parameters' address.

.registers 7 X FACTOR SHIFT RIGHT VALUE REST T COUNT PARAM
; Words from a column's, and a row's, parameters to the next; bounds; a loop's address; the tail's number; bounds of INT16.
.registers 16 PARAM_STEP ROW_STEP LOWEST HIGHEST LOOP_AT TAIL MOST LEAST
; From 24 on registers belong to an instruction and its front: the data address of the next word, or the address of the
; routine that fetches the next element; the accumulators' next row, columns left of the last one, columns of one, and what a
; loop of them counts.
.registers 24 WORD_AT
.registers 24 ELEMENT_IN
.registers 24 TILE LEFT COLUMNS ROW_COUNT

% set whole_tiles = config.requantizer and config.array.cols > 1 and is_power(config.array.cols)

op_DRAIN:
    SIGNAL {{ signal.VECTOR }}
    CALL LINK, begin
{{ choose_loop("sums_in") }}
    SLLI ROW_STEP, FLAGS, {{ 31 - bit("DRAIN", "per_row") }}
    SRAI ROW_STEP, ROW_STEP, 31
    ANDI ROW_STEP, ROW_STEP, {{ PARAM_WORDS }}
    SET COLUMNS, {{ config.array.cols }}
    MOVE ROW_COUNT, n
% if whole_tiles
    ANDI T, n, {{ config.array.cols - 1 }}
    BNE T, ZERO, drain_row
{{ choose_loop("tiles_in") }}
    SRLI ROW_COUNT, n, {{ log2(config.array.cols) }}
% endif
drain_row:
    MOVE TILE, acc_addr
    SET LEFT, 1
    MOVE COUNT, ROW_COUNT
    MOVE PARAM, params
{{ run_loop() }}
    ADDI acc_addr, acc_addr, 1
    ADD r_addr, r_addr, r_stride
    ADD params, params, ROW_STEP
{{ next_row("drain_row") }}
    GOTO retire

op_MAP:
    SIGNAL {{ signal.VECTOR }}
    CALL LINK, begin
{{ choose_loop("map_in") }}
    ADDI ELEMENT_IN, ZERO, byte_in
    SUB i_stride, i_stride, n
    UNLESS FLAGS, {{ bit("MAP", "wide_in") }}, map_row, T
    ADDI ELEMENT_IN, ZERO, wide_in
    SUB i_stride, i_stride, n
map_row:
    MOVE COUNT, n
    MOVE PARAM, params
{{ run_loop() }}
    ADD i_addr, i_addr, i_stride
    ADD r_addr, r_addr, r_stride
{{ next_row("map_row") }}
    GOTO retire
