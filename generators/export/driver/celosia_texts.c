#include "celosia_texts.h"

enum celosia_result celosia_texts_take(const celosia_t *it, const celosia_texts_model_t *model,
                                       celosia_texts_t *texts, const uint32_t *first,
                                       const uint32_t *second) {
    const celosia_text_model_t *both = &model->both;
    const celosia_call_t *calls[2] = {&both->step, &model->second};
    const uint32_t *tokens[2] = {first, second};
    for (uint32_t text = 0; text < 2; text++)
        if (tokens[text] && texts->lengths[text] >= both->places) return CELOSIA_ROWS;
    const enum celosia_result ready = celosia_present(it, 0);
    if (ready != CELOSIA_OK) return ready;
    for (uint32_t text = 0; text < 2; text++) {
        /* A text without a new token takes its last one again, at the same place. */
        const uint32_t length = texts->lengths[text], rests = !tokens[text] && length;
        const uint32_t token = tokens[text] ? *tokens[text] : texts->last[text];
        uint32_t numbers[CELOSIA_NUMBERS] = {0};
        celosia_text_numbers(both, length - rests, 1, numbers);
        celosia_text_write(it, calls[text], numbers, &token, 1);
    }
    const enum celosia_result found = celosia_start(it, both->step.start);
    for (uint32_t text = 0; text < 2 && found == CELOSIA_OK; text++) {
        if (!tokens[text]) continue;
        texts->last[text] = *tokens[text];
        texts->lengths[text]++;
    }
    return found;
}

enum celosia_result celosia_texts_second(const celosia_t *it, const celosia_texts_model_t *model) {
    const enum celosia_result ready = celosia_present(it, 0);
    return ready == CELOSIA_OK ? celosia_start(it, model->second.start) : ready;
}
