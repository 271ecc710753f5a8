/* A language model on a Celosia accelerator, token by token: polled, C99, without allocation. */
#ifndef CELOSIA_TEXT_H
#define CELOSIA_TEXT_H

#include "celosia.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Number from which the value of a register is made. */
enum celosia_index {
    CELOSIA_BY_TOKEN,    /* the run's token of row `row`, 0 if it has fewer rows */
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

/* A register's value: number % modulo / divide * times; modulo 0 leaves the number unchanged. */
typedef struct {
    uint32_t offset; /* byte offset of the register */
    uint32_t index, row, times, divide, modulo;
} celosia_value_t;

/* One of the programs, and the registers to write before it. */
typedef struct {
    uint32_t start; /* its first word */
    uint32_t value_count;
    const celosia_value_t *values;
} celosia_call_t;

/* A program that fills the chip once, and the content of external memory for it. */
typedef struct {
    const uint32_t *image, *program;
    uint32_t image_bytes, program_words;
} celosia_fill_t;

typedef struct {
    const char *name;
    const celosia_fill_t *setup;
    const uint32_t *program;
    celosia_call_t step;             /* takes one token */
    celosia_call_t words, chunk;     /* take several, up to `rows`, in this order */
    celosia_call_t scores;           /* stores the scores of the next token */
    celosia_call_t lookup, encode;   /* take a source */
    uint32_t setup_count, program_words;
    uint32_t memory_bytes;           /* external memory that the model takes */
    uint32_t rows;                   /* most tokens of a chunk */
    uint32_t capacity, sinks;        /* tokens that the cache holds; of these, those that stay */
    uint32_t places;                 /* most tokens of a text */
    uint32_t vocabulary;
    uint32_t begin;                  /* the token that begins an answer to a source */
    uint32_t lookups, sources;       /* most tokens of one lookup, and of a source */
    uint32_t argmax;                 /* 1: the register ARGMAX holds the likeliest token */
    celosia_tensor_t logits;         /* the scores, one row of INT16 */
    const uint8_t *const *pieces;    /* each token's number of bytes, then the bytes */
    uint32_t stripped;               /* 1: the space before a text's first piece is left out */
} celosia_text_model_t;

/* A text that is printed: begin with {0, {0}, 0}. */
typedef struct {
    uint32_t begun;  /* 1: characters were printed */
    uint8_t held[3]; /* first bytes of a character that later tokens complete */
    uint32_t count;
} celosia_printed_t;

enum { CELOSIA_PIECE = 258 /* most bytes that one token can complete */ };

/* A text that grows; nothing else may run on the accelerator meanwhile. */
typedef struct {
    uint32_t length; /* tokens so far */
    uint32_t source; /* tokens of the answered source; 0: of the longest one */
} celosia_text_t;

/* Computes the numbers for a program's registers, for `rows` tokens after the first `at` ones. */
void celosia_text_numbers(const celosia_text_model_t *model, uint32_t at, uint32_t rows,
                          uint32_t numbers[CELOSIA_NUMBERS]);

/* Writes the registers of a program, computed from the numbers and from `count` tokens. */
void celosia_text_write(const celosia_t *it, const celosia_call_t *which, const uint32_t *numbers,
                        const uint32_t *tokens, uint32_t count);

/* Fills the chip, and loads the programs. */
enum celosia_result celosia_text_load(const celosia_t *it, const celosia_text_model_t *model);

/* Begins the answer to a source of 1 to `sources` tokens. A text without a source needs no call:
 * `*text = (celosia_text_t){0, 0}` begins it. */
enum celosia_result celosia_text_source(const celosia_t *it, const celosia_text_model_t *model,
                                        celosia_text_t *text, const uint32_t *tokens,
                                        uint32_t count);

/* Appends tokens to a text; CELOSIA_ROWS if the text has no room for them. */
enum celosia_result celosia_text_take(const celosia_t *it, const celosia_text_model_t *model,
                                      celosia_text_t *text, const uint32_t *tokens,
                                      uint32_t count);

/* Stores the likeliest next token, the lowest one if several are equal. */
enum celosia_result celosia_text_choose(const celosia_t *it, const celosia_text_model_t *model,
                                        uint32_t *token);

/* Adds a token to a printed text. Writes the bytes to print now, whole characters of UTF-8, and
 * returns their number. */
uint32_t celosia_text_print(const celosia_text_model_t *model, celosia_printed_t *printed,
                            uint32_t token, uint8_t bytes[CELOSIA_PIECE]);

/* Stores each token's score as the next token, for a host that samples; one step of a score is
 * `logits.scale`. */
enum celosia_result celosia_text_scores(const celosia_t *it, const celosia_text_model_t *model,
                                        int16_t *scores);

#ifdef __cplusplus
}
#endif

#endif
