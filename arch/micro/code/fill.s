; PARAMS and TABLE: from the scratchpad to the data memory.

.registers 7 SOURCE PLACE WORD HIGH LEFT

; Four bytes to the data memory.
% macro word(offset)
    LHU WORD, SOURCE, {{ offset }}
    LH HIGH, SOURCE, {{ offset + 2 }}
    SLLI HIGH, HIGH, 16
    OR WORD, WORD, HIGH
    STP PLACE, WORD, 1
% endmacro

op_PARAMS:
    SIGNAL {{ signal.VECTOR }}
    SET WORD, {{ PARAM_WORDS }}
    MUL WORD, params
    MOVE SOURCE, i_addr
    LOW PLACE
    SET WORD, {{ where.params }}
    ADD PLACE, PLACE, WORD
PARAMS_word:
{{ word(0) }}
{{ word(4) }}
    LB WORD, SOURCE, 8
    STP PLACE, WORD, 1
    ADDI SOURCE, SOURCE, {{ config.param_lines * config.line_bytes }}
    LOOP n, PARAMS_word
    GOTO retire

% if config.activation
op_TABLE:
    SIGNAL {{ signal.VECTOR }}
    SLLI PLACE, table, {{ log2(TABLE_WORDS) }}
    SET WORD, {{ where.tables }}
    ADD PLACE, PLACE, WORD
    MOVE SOURCE, i_addr
    SET LEFT, {{ TABLE_WORDS }}
TABLE_word:
{{ word(0) }}
    ADDI SOURCE, SOURCE, 4
    LOOP LEFT, TABLE_word
    GOTO retire
% endif
