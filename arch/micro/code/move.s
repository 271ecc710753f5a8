; LOAD and STORE: rows between external memory and the scratchpad, in bursts of at most 256 words.

.registers 7 EXTERNAL PLACE LEFT WORDS WORD HELP MASK WHOLE
% set BURST = 256
% set step = log2(config.mem_bytes)

; A burst's whole words to an even place.
% macro take_words()
    ANDI MASK, PLACE, 1
    BNE MASK, ZERO, LOAD_word
    SRLI MASK, LEFT, 1
    MIN MASK, MASK, WORDS
    BEQ MASK, ZERO, LOAD_word
    SET WHOLE, 2
    REPEAT ZERO, MASK
    ADD HELP, MASK, MASK
    SUB LEFT, LEFT, HELP
    SUB WORDS, WORDS, MASK
    TAKES PLACE, WHOLE
    BEQ WORDS, ZERO, LOAD_more
% endmacro

; One word to the scratchpad, of the row's last one only its own bytes.
% macro take()
    TAKE WORD
% if config.mem_bytes == 1
    SBP PLACE, WORD, 1
% else
    BLT LEFT, ZERO, LOAD_rest
    SHP PLACE, WORD, 2
% for _ in range(config.mem_bytes // 2 - 1)
    SRLI WORD, WORD, 16
    SHP PLACE, WORD, 2
% endfor
    GOTO LOAD_whole
LOAD_rest:
    ADDI LEFT, LEFT, {{ config.mem_bytes }}
LOAD_byte:
    SBP PLACE, WORD, 1
    SRLI WORD, WORD, 8
    LOOP LEFT, LOAD_byte
LOAD_whole:
% endif
% endmacro

; One word from the scratchpad.
% macro give()
% if config.mem_bytes == 1
    LBP WORD, PLACE, 1
% else
    LHUP WORD, PLACE, 2
% endif
% for half in range(1, config.mem_bytes // 2)
    LHUP HELP, PLACE, 2
    SLLI HELP, HELP, {{ 16 * half }}
    OR WORD, WORD, HELP
% endfor
    MOVE MASK, WHOLE
    BGE LEFT, ZERO, STORE_whole
    SUB HELP, ZERO, LEFT
    SRL MASK, MASK, HELP
STORE_whole:
    GIVE WORD, MASK
% endmacro

% for name in ("LOAD", "STORE")
op_{{ name }}:
% if name == "STORE"
    SET WHOLE, {{ 2 ** config.mem_bytes - 1 }}
% endif
{{ name }}_row:
    MOVE EXTERNAL, dram_addr
    MOVE PLACE, sp_addr
    MOVE LEFT, row_bytes
{{ name }}_burst:
    ADDI WORDS, LEFT, {{ config.mem_bytes - 1 }}
    SRLI WORDS, WORDS, {{ step }}
    MINI WORDS, WORDS, {{ BURST }}
    ADDI HELP, WORDS, -1
    {{ "ASK" if name == "LOAD" else "OFFER" }} EXTERNAL, HELP
    SLLI HELP, WORDS, {{ step }}
    ADD EXTERNAL, EXTERNAL, HELP
% if name == "LOAD" and config.mem_bytes == 2
{{ take_words() }}
% endif
{{ name }}_word:
    ADDI LEFT, LEFT, {{ -config.mem_bytes }}
{{ take() if name == "LOAD" else give() }}
    LOOP WORDS, {{ name }}_word
% if name == "STORE"
    AWAIT
% else
LOAD_more:
% endif
    BLT ZERO, LEFT, {{ name }}_burst
    ADD dram_addr, dram_addr, dram_stride
    ADD sp_addr, sp_addr, sp_stride
    LOOP m, {{ name }}_row
    GOTO next
% endfor
