/* Two texts of a language model on a Celosia accelerator, a token of each in every run. */
#ifndef CELOSIA_TEXTS_H
#define CELOSIA_TEXTS_H

#include "celosia_text.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A model compiled for two texts; do not use celosia_text_take and celosia_text_source with it. */
typedef struct {
    celosia_text_model_t both; /* its step takes a token of each text; its values are the first's */
    celosia_call_t second;     /* computes the second's scores; the step takes its values too */
} celosia_texts_model_t;

/* Two growing texts, both new if all fields are 0; nothing else may run on the accelerator. */
typedef struct {
    uint32_t lengths[2]; /* tokens so far */
    uint32_t last[2];    /* each text's last token */
} celosia_texts_t;

/* Appends a token to each text in one run. NULL leaves a text unchanged. CELOSIA_ROWS if a text has
 * no room for its token.
 *
 * Call celosia_text_load with `both` once before it. After it celosia_text_choose and
 * celosia_text_scores with `both` return the first text's next token and scores. */
enum celosia_result celosia_texts_take(const celosia_t *it, const celosia_texts_model_t *model,
                                       celosia_texts_t *texts, const uint32_t *first,
                                       const uint32_t *second);

/* Computes the scores of the second text. After it the same two functions return that text's. */
enum celosia_result celosia_texts_second(const celosia_t *it, const celosia_texts_model_t *model);

#ifdef __cplusplus
}
#endif

#endif
