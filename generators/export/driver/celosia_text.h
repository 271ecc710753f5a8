/* A language model on a Celosia accelerator, token by token: polled, C99, without allocation. */
#ifndef CELOSIA_TEXT_H
#define CELOSIA_TEXT_H

#include "celosia.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Number from which the value of a register is made. */
enum celosia_index {
    CELOSIA_BY_TOKEN,    /* the run's token of some row, 0 where it has fewer */
    CELOSIA_BY_POSITION, /* position of the run's first token */
    CELOSIA_BY_PLACE,    /* its place in the cache */
    CELOSIA_BY_COUNT,    /* places of the cache that the last token attends to */
    CELOSIA_BY_LIMIT,    /* places of the cache that the first token attends to */
    CELOSIA_BY_ROWS,     /* tokens of the run */
    CELOSIA_BY_LAST,     /* one less */
    CELOSIA_BY_SOURCE,   /* tokens of the source */
    CELOSIA_BY_FIRST,    /* place in its source of the first token that is looked up */
    CELOSIA_NUMBERS
};

/* A register's value: the number, modulo and divided by what is not 0, times a factor. */
typedef struct {
    uint32_t offset; /* byte offset of the register */
    uint32_t index, row, times, divide, modulo;
} celosia_value_t;

/* A program among the others, and the registers that it takes. */
typedef struct {
    uint32_t start; /* its first word */
    uint32_t value_count;
    const celosia_value_t *values;
} celosia_call_t;

/* A program that fills the chip once, and what it finds in external memory. */
typedef struct {
    const uint32_t *image, *program;
    uint32_t image_bytes, program_words;
} celosia_fill_t;

typedef struct {
    const char *name;
    const celosia_fill_t *setup;
    const uint32_t *program;
    celosia_call_t step;             /* takes one token */
    celosia_call_t words, chunk;     /* take several, up to `rows`, one after the other */
    celosia_call_t scores;           /* stores the scores behind the last token */
    celosia_call_t lookup, encode;   /* take a source */
    uint32_t setup_count, program_words;
    uint32_t memory_bytes;           /* external memory that the model takes */
    uint32_t rows;                   /* tokens of a chunk, at most */
    uint32_t capacity, sinks;        /* tokens that the cache has room for, and that never leave */
    uint32_t places;                 /* tokens of a text, at most */
    uint32_t vocabulary;
    uint32_t begin;                  /* the token that begins an answer to a source */
    uint32_t lookups, sources;       /* tokens of a source: of one lookup, and at most */
    uint32_t argmax;                 /* 1: the machine itself tells the likeliest token */
    celosia_tensor_t logits;         /* the scores, one row of INT16 */
    const uint8_t *const *pieces;    /* bytes that each token adds, their number before them */
    uint32_t stripped;               /* 1: the space ahead of a text's first piece is left out */
} celosia_text_model_t;

/* A text that is printed: begin with {0, {0}, 0}. */
typedef struct {
    uint32_t begun;  /* 1: there are characters */
    uint8_t held[3]; /* bytes of a character that further tokens finish */
    uint32_t count;
} celosia_printed_t;

enum { CELOSIA_PIECE = 258 /* bytes that a token lets print, at most */ };

/* A text that grows; nothing else may run on the accelerator meanwhile. */
typedef struct {
    uint32_t length; /* tokens so far */
    uint32_t source; /* tokens of the source that they answer; 0: of the longest one */
} celosia_text_t;

/* Fills in the numbers that registers are of, for so many tokens behind `at` of them. */
void celosia_text_numbers(const celosia_text_model_t *model, uint32_t at, uint32_t rows,
                          uint32_t numbers[CELOSIA_NUMBERS]);

/* Writes the registers of a program, which are of these numbers and of so many tokens. */
void celosia_text_write(const celosia_t *it, const celosia_call_t *which, const uint32_t *numbers,
                        const uint32_t *tokens, uint32_t count);

/* Fills the chip, and loads the programs. */
enum celosia_result celosia_text_load(const celosia_t *it, const celosia_text_model_t *model);

/* Begins a new text, which is not in memory: `*text = (celosia_text_t){0, 0}` without a source;
 * with one, of whose tokens there is at least one and at most `sources`: */
enum celosia_result celosia_text_source(const celosia_t *it, const celosia_text_model_t *model,
                                        celosia_text_t *text, const uint32_t *tokens,
                                        uint32_t count);

/* Takes tokens behind those that are there; CELOSIA_ROWS where the text has no place for them. */
enum celosia_result celosia_text_take(const celosia_t *it, const celosia_text_model_t *model,
                                      celosia_text_t *text, const uint32_t *tokens,
                                      uint32_t count);

/* Gives the likeliest token behind the last one, the first of equals. */
enum celosia_result celosia_text_choose(const celosia_t *it, const celosia_text_model_t *model,
                                        uint32_t *token);

/* Adds a token to a text that is printed; gives the bytes, whole characters of UTF-8, that can be
 * printed now, and returns their number. */
uint32_t celosia_text_print(const celosia_text_model_t *model, celosia_printed_t *printed,
                            uint32_t token, uint8_t bytes[CELOSIA_PIECE]);

/* Stores the scores of all tokens behind the last one, for a host that draws: of each token one
 * that `logits.scale` is the step of. */
enum celosia_result celosia_text_scores(const celosia_t *it, const celosia_text_model_t *model,
                                        int16_t *scores);

#ifdef __cplusplus
}
#endif

#endif
