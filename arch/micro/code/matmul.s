; MATMUL of streamed weights without zero points: tile by tile, each of its weights once, then every row of activations.
; Weights past k or n are 0, so that it does not matter what is read or summed there. On an array of two rows, operands at even
; places come two bytes at a time.

; Bytes along k and along n.
.registers 7 B_STEP B_COLUMN
.registers 9 A_TILE B_TILE B_TOP ACC_TILE
.registers 13 K_LEFT N_LEFT ROWS_LEFT COLUMNS LENGTH
.registers 18 POINT PLACE HELP ONE BLANKS MISSING
.registers 24 ODD LEAST TWO BEHIND NEXT
% set words = config.array.rows == 2
% set columns = config.array.cols + config.array.cols % 2

; A pointer's way over so many steps.
% macro skip(pointer, step, count)
% if is_power(count)
    SLLI HELP, {{ step }}, {{ log2(count) }}
    ADD {{ pointer }}, {{ pointer }}, HELP
% else
% for _ in range(count)
    ADD {{ pointer }}, {{ pointer }}, {{ step }}
% endfor
% endif
% endmacro

op_MATMUL:
    SET ONE, 1
    MOVE B_COLUMN, ONE
    MOVE B_STEP, b_stride
    UNLESS FLAGS, {{ bit("MATMUL", "b_transpose") }}, MATMUL_straight, HELP
    MOVE B_COLUMN, b_stride
    MOVE B_STEP, ONE
MATMUL_straight:
    MOVE ACC_TILE, acc_addr
    MOVE B_TOP, b_addr
    MOVE N_LEFT, n
% if words
; Whether activations may be odd, and the columns at least for whole words.
    OR ODD, a_addr, a_stride
    OR HELP, ODD, k
    OR HELP, HELP, b_addr
    OR HELP, HELP, b_stride
    OR HELP, HELP, FLAGS
    ANDI ODD, ODD, 1
    ANDI HELP, HELP, 1
; More columns than there are, where not all is even or weights are transposed.
    ADD LEAST, N_LEFT, HELP
    ADDI LEAST, LEAST, {{ config.array.cols }}
    BNE HELP, ZERO, MATMUL_parity
    SET LEAST, {{ config.array.cols }}
MATMUL_parity:
    SET TWO, 2
    ADD BEHIND, B_STEP, B_STEP
    ADDI BEHIND, BEHIND, {{ 2 - config.array.cols }}
; From behind all rows to the first one's next two bytes.
    MUL m, a_stride
    LOW NEXT
    SUB NEXT, TWO, NEXT
% endif
MATMUL_column:
    MOVE A_TILE, a_addr
    MOVE B_TILE, B_TOP
    MOVE K_LEFT, k
% if words and config.array.cols % 2 == 0
; A tile column whose operands come as words, where there are whole ones.
    BLT N_LEFT, LEAST, MATMUL_tile
    ADD PLACE, B_TOP, B_STEP
    SRLI K_LEFT, K_LEFT, 1
    MOVE POINT, a_addr
MATMUL_words:
% for pointer in ("B_TILE", "PLACE")
% for _ in range(config.array.cols // 2 - 1)
    WEIGHTS {{ pointer }}, TWO
% endfor
    WEIGHTS {{ pointer }}, BEHIND
% endfor
    REPEAT ACC_TILE, m
    ENTERS POINT, a_stride
    ADD POINT, POINT, NEXT
    LOOP K_LEFT, MATMUL_words
    GOTO MATMUL_summed
% endif

; A tile's weights into the array.
MATMUL_tile:
    MINI LENGTH, K_LEFT, {{ config.array.rows }}
    MINI COLUMNS, N_LEFT, {{ config.array.cols }}
    SET HELP, {{ columns }}
    SUB BLANKS, HELP, COLUMNS
    SET HELP, {{ config.array.rows }}
    SUB MISSING, HELP, LENGTH
    MOVE PLACE, B_TILE
MATMUL_weights:
    MOVE POINT, PLACE
    ADD PLACE, PLACE, B_STEP
    SLTI HELP, COLUMNS, {{ config.array.cols }}
    BNE HELP, ZERO, MATMUL_part
% for _ in range(config.array.cols)
    WEIGHT POINT, B_COLUMN
% endfor
% if columns > config.array.cols
    BLANK
% endif
    LOOP LENGTH, MATMUL_weights
    GOTO MATMUL_missing
MATMUL_part:
    MOVE HELP, COLUMNS
MATMUL_weight:
    WEIGHT POINT, B_COLUMN
    LOOP HELP, MATMUL_weight
    MOVE HELP, BLANKS
MATMUL_blank:
    BLANK
    LOOP HELP, MATMUL_blank
    LOOP LENGTH, MATMUL_weights
MATMUL_missing:
    BEQ MISSING, ZERO, MATMUL_stream
% for _ in range(columns)
    BLANK
% endfor
    ADDI MISSING, MISSING, -1
    GOTO MATMUL_missing

; m rows of activations, whose sums go to the accumulators.
MATMUL_stream:
    REPEAT ACC_TILE, m
    MOVE POINT, A_TILE
% if words
    BNE ODD, ZERO, MATMUL_bytes
    ENTERS POINT, a_stride
    GOTO MATMUL_streamed
MATMUL_bytes:
% endif
    MOVE BLANKS, A_TILE
    MOVE ROWS_LEFT, m
MATMUL_row:
% for _ in range(config.array.rows)
    ENTER POINT, ONE
% endfor
    ADD BLANKS, BLANKS, a_stride
    MOVE POINT, BLANKS
    LOOP ROWS_LEFT, MATMUL_row
MATMUL_streamed:
    ADDI A_TILE, A_TILE, {{ config.array.rows }}
{{ skip("B_TILE", "B_STEP", config.array.rows) }}
    ADDI K_LEFT, K_LEFT, {{ -config.array.rows }}
    BLT ZERO, K_LEFT, MATMUL_tile
MATMUL_summed:
    ADD ACC_TILE, ACC_TILE, acc_stride
{{ skip("B_TOP", "B_COLUMN", config.array.cols) }}
    ADDI N_LEFT, N_LEFT, {{ -config.array.cols }}
    BLT ZERO, N_LEFT, MATMUL_column
    GOTO next
