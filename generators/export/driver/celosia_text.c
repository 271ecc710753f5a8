#include "celosia_text.h"

#include "celosia_registers.h"

#define OFFSET(name) ((uint32_t)offsetof(celosia_registers_t, name))

static uint32_t least(uint32_t a, uint32_t b) { return a < b ? a : b; }

void celosia_text_numbers(const celosia_text_model_t *model, uint32_t at, uint32_t rows,
                          uint32_t numbers[CELOSIA_NUMBERS]) {
    const uint32_t most = model->capacity, sinks = model->sinks;
    numbers[CELOSIA_BY_POSITION] = at;
    numbers[CELOSIA_BY_PLACE] = at < most ? at : sinks + (at - sinks) % (most - sinks);
    numbers[CELOSIA_BY_COUNT] = least(at + rows, most);
    numbers[CELOSIA_BY_LIMIT] = least(at + 1, most);
    numbers[CELOSIA_BY_ROWS] = rows;
    numbers[CELOSIA_BY_LAST] = rows - 1;
}

void celosia_text_write(const celosia_t *it, const celosia_call_t *which, const uint32_t *numbers,
                        const uint32_t *tokens, uint32_t count) {
    for (uint32_t index = 0; index < which->value_count; index++) {
        const celosia_value_t *value = &which->values[index];
        uint32_t number = 0;
        if (value->index != CELOSIA_BY_TOKEN)
            number = numbers[value->index];
        else if (value->row < count)
            number = tokens[value->row];
        if (value->modulo) number %= value->modulo;
        celosia_set(it, value->offset, number / value->divide * value->times);
    }
}

/* Writes the registers of a program, and runs it. */
static enum celosia_result call(const celosia_t *it, const celosia_call_t *which,
                                const uint32_t *numbers, const uint32_t *tokens, uint32_t count) {
    const enum celosia_result ready = celosia_present(it, 0);
    if (ready != CELOSIA_OK) return ready;
    celosia_text_write(it, which, numbers, tokens, count);
    return celosia_start(it, which->start);
}

enum celosia_result celosia_text_load(const celosia_t *it, const celosia_text_model_t *model) {
    enum celosia_result found = celosia_present(it, model->memory_bytes);
    for (uint32_t index = 0; index < model->setup_count && found == CELOSIA_OK; index++) {
        const celosia_fill_t *fill = &model->setup[index];
        celosia_image(it, fill->image, fill->image_bytes);
        celosia_program(it, fill->program, fill->program_words);
        found = celosia_start(it, 0);
    }
    if (found == CELOSIA_OK) celosia_program(it, model->program, model->program_words);
    return found;
}

enum celosia_result celosia_text_source(const celosia_t *it, const celosia_text_model_t *model,
                                        celosia_text_t *text, const uint32_t *tokens,
                                        uint32_t count) {
    uint32_t numbers[CELOSIA_NUMBERS] = {0};
    enum celosia_result found = CELOSIA_OK;
    if (count < 1 || count > model->sources) return CELOSIA_ROWS;
    for (uint32_t first = 0; first < count && found == CELOSIA_OK; first += model->lookups) {
        numbers[CELOSIA_BY_FIRST] = first;
        found = call(it, &model->lookup, numbers, tokens + first,
                     least(model->lookups, count - first));
    }
    if (found != CELOSIA_OK) return found;
    text->length = 0;
    text->source = numbers[CELOSIA_BY_SOURCE] = count;
    return call(it, &model->encode, numbers, NULL, 0);
}

enum celosia_result celosia_text_take(const celosia_t *it, const celosia_text_model_t *model,
                                      celosia_text_t *text, const uint32_t *tokens,
                                      uint32_t count) {
    if (count > model->places - text->length) return CELOSIA_ROWS;
    while (count) {
        const uint32_t most = model->capacity, at = text->length;
        /* A chunk is at most as long as the room in the cache. */
        const uint32_t room = at < most ? least(model->rows, most - at) : 1;
        const uint32_t rows = room < 2 ? 1 : least(room, count);
        uint32_t numbers[CELOSIA_NUMBERS] = {0};
        celosia_text_numbers(model, at, rows, numbers);
        numbers[CELOSIA_BY_SOURCE] = text->source ? text->source : model->sources;
        enum celosia_result found = CELOSIA_OK;
        if (rows > 1) found = call(it, &model->words, numbers, tokens, rows);
        if (found == CELOSIA_OK)
            found = call(it, rows > 1 ? &model->chunk : &model->step, numbers, tokens, rows);
        if (found != CELOSIA_OK) return found;
        text->length += rows;
        tokens += rows;
        count -= rows;
    }
    return CELOSIA_OK;
}

enum celosia_result celosia_text_choose(const celosia_t *it, const celosia_text_model_t *model,
                                        uint32_t *token) {
    int16_t best = 0;
    if (model->argmax) {
        *token = celosia_get(it, OFFSET(ARGMAX));
        return CELOSIA_OK;
    }
    const enum celosia_result found = call(it, &model->scores, NULL, NULL, 0);
    for (uint32_t index = 0; index < model->vocabulary && found == CELOSIA_OK; index++) {
        uint8_t bytes[2];
        celosia_take(it, model->logits.addr + 2 * index, bytes, 2);
        const int16_t score = (int16_t)(bytes[0] | bytes[1] << 8);
        if (index && score <= best) continue;
        best = score;
        *token = index;
    }
    return found;
}

enum celosia_result celosia_text_scores(const celosia_t *it, const celosia_text_model_t *model,
                                        int16_t *scores) {
    const enum celosia_result found = call(it, &model->scores, NULL, NULL, 0);
    if (found == CELOSIA_OK)
        celosia_take(it, model->logits.addr, (uint8_t *)scores, 2 * model->vocabulary);
    return found;
}

/* Returns the number of bytes at the end that begin an incomplete character. */
static uint32_t unfinished(const uint8_t *bytes, uint32_t count) {
    for (uint32_t back = 1; back <= least(count, 3); back++) {
        const uint8_t byte = bytes[count - back];
        if ((byte & 0xC0) == 0x80) continue;
        const uint32_t size = byte >= 0xF0 ? 4 : byte >= 0xE0 ? 3 : byte >= 0xC0 ? 2 : 1;
        return size > back ? back : 0;
    }
    return 0;
}

uint32_t celosia_text_print(const celosia_text_model_t *model, celosia_printed_t *printed,
                            uint32_t token, uint8_t bytes[CELOSIA_PIECE]) {
    const uint8_t *piece = model->pieces[token] + 1;
    uint32_t size = piece[-1], count = 0;
    if (size && !printed->begun) {
        printed->begun = 1;
        if (model->stripped && *piece == ' ') {
            piece++;
            size--;
        }
    }
    while (count < printed->count) {
        bytes[count] = printed->held[count];
        count++;
    }
    while (size--) bytes[count++] = *piece++;
    printed->count = unfinished(bytes, count);
    count -= printed->count;
    for (uint32_t index = 0; index < printed->count; index++)
        printed->held[index] = bytes[count + index];
    return count;
}
