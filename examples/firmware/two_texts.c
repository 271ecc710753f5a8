// Continues two texts at once, with the files of: celosia compile tales --config small --context 64
// --prompt "one day" --prompt "the red fox" --c --out build/two_tales
#include "tales_model.h"

static const celosia_t machine = {0x80000000, 0x40000000, 1 << 20, 0};

int go_on(void (*say)(uint32_t text, const uint8_t *piece, uint32_t bytes)) {
    const celosia_text_model_t *both = &tales_model.both;
    celosia_texts_t texts = {{0, 0}, {0, 0}};
    celosia_printed_t printed[TALES_TEXTS] = {{0, {0}, 0}, {0, {0}, 0}};
    uint8_t bytes[CELOSIA_PIECE];
    uint32_t chosen[TALES_TEXTS];
    if (celosia_text_load(&machine, both)) return 1;
    for (uint32_t run = 0; run < 60; run++) {
        const uint32_t *next[TALES_TEXTS];
        for (uint32_t text = 0; text < TALES_TEXTS; text++)
            next[text] = run < tales_sample_given[text] ? &tales_sample_tokens[text][run] : &chosen[text];
        if (celosia_texts_take(&machine, &tales_model, &texts, next[0], next[1])) return 1;
        for (uint32_t text = 0; text < TALES_TEXTS; text++) {
            if (text && celosia_texts_second(&machine, &tales_model)) return 1;
            if (celosia_text_choose(&machine, both, &chosen[text])) return 1;
            if (run + 1 < tales_sample_given[text]) continue;
            say(text, bytes, celosia_text_print(both, &printed[text], chosen[text], bytes));
        }
    }
    return 0;
}
