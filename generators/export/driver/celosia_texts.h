/* Two texts of a language model on a Celosia accelerator, a token of each in every run. */
#ifndef CELOSIA_TEXTS_H
#define CELOSIA_TEXTS_H

#include "celosia_text.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A model that is compiled for two texts; celosia_text_take and celosia_text_source are not for it.
 */
typedef struct {
    celosia_text_model_t both; /* its step takes a token of each; its values are the first text's */
    celosia_call_t second;     /* makes the scores of the second, whose values the step takes too */
} celosia_texts_model_t;

/* Two texts that grow, new where all is 0; nothing else may run on the accelerator meanwhile. */
typedef struct {
    uint32_t lengths[2]; /* tokens so far */
    uint32_t last[2];    /* the last one of them */
} celosia_texts_t;

/* Takes a token of each text in one run, behind those that are there. It is NULL for a text that
 * rests, of which nothing changes. CELOSIA_ROWS where a text has no place for its token.
 *
 * celosia_text_load of `both` comes before it, once. Behind it celosia_text_choose and
 * celosia_text_scores of `both` give what follows the first text. */
enum celosia_result celosia_texts_take(const celosia_t *it, const celosia_texts_model_t *model,
                                       celosia_texts_t *texts, const uint32_t *first,
                                       const uint32_t *second);

/* Makes the scores of the second text. Behind it the same two give what follows that text. */
enum celosia_result celosia_texts_second(const celosia_t *it, const celosia_texts_model_t *model);

#ifdef __cplusplus
}
#endif

#endif
