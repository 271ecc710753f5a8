/* A driver for a Celosia accelerator: polled, C99, without allocation.
 *
 * The processor must store the least significant byte first. Memory that it shares with the
 * accelerator must not be cached, or the cache must be written back before a run and invalidated
 * after it.
 */
#ifndef CELOSIA_H
#define CELOSIA_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum celosia_result {
    CELOSIA_OK = 0,
    CELOSIA_ABSENT,  /* the registers' address does not hold an accelerator's ID */
    CELOSIA_MEMORY,  /* the model needs more external memory than there is */
    CELOSIA_BUSY,    /* a run, a reset or an abort is not yet over */
    CELOSIA_ROWS,    /* the model takes no input of this number of rows */
    CELOSIA_FAILED,  /* the run stopped with an error; celosia_status returns it */
    CELOSIA_TIMEOUT  /* it is still busy after `polls` polls; a run is aborted */
};

/* An accelerator, as the processor sees it. */
typedef struct {
    uintptr_t registers;   /* address of the first register */
    uintptr_t memory;      /* address of the first byte of external memory */
    uint32_t memory_bytes; /* size of external memory */
    uint32_t polls;        /* most polls until it is idle; 0 for no limit */
} celosia_t;

/* Integers in external memory, row by row; q stands for scale * (q - zero). */
typedef struct {
    uint32_t addr; /* byte address in external memory */
    uint32_t rows, columns;
    uint32_t bits; /* of an element: 16 in an int16_t, any other in an int8_t */
    int32_t zero;
    double scale;
} celosia_tensor_t;

typedef struct {
    uint32_t offset; /* byte offset of a register */
    uint32_t value;
} celosia_setting_t;

typedef struct {
    uint32_t addr, bytes;
    const uint8_t *data;
} celosia_piece_t;

/* Registers and bytes to write before an inference of `rows` rows, besides the input. */
typedef struct {
    uint32_t rows;
    uint32_t setting_count, piece_count;
    const celosia_setting_t *settings;
    const celosia_piece_t *pieces;
} celosia_request_t;

typedef struct {
    const char *name;
    const uint32_t *program;
    uint32_t program_words;
    uint32_t start; /* word where a run begins */
    uint32_t again; /* word where it begins if weights are on the chip; else as start */
    const uint32_t *image; /* external memory from its first byte on */
    uint32_t image_bytes;
    uint32_t memory_bytes; /* external memory that the model takes */
    celosia_tensor_t input, output;
    const celosia_request_t *requests;
    uint32_t request_count;
    const char *const *labels; /* names of the output's columns, or NULL */
} celosia_model_t;

/* Loads a model: its program into the accelerator, its image into external memory. It clears the
 * bits of INTERRUPT. If only DONE is set later, a run has ended well and nothing was reset or
 * aborted, so the next run finds the weights that stay on the chip. */
enum celosia_result celosia_load(const celosia_t *it, const celosia_model_t *model);

/* Runs one inference: begin, poll, end. `input` and `output` hold int8_t or int16_t, according to
 * the `bits` of the model's tensors. `input` has `rows` rows, usually input.rows. */
enum celosia_result celosia_run(const celosia_t *it, const celosia_model_t *model,
                                const void *input, uint32_t rows, void *output);

/* Writes an input and starts; the processor is free until celosia_busy returns 0. */
enum celosia_result celosia_begin(const celosia_t *it, const celosia_model_t *model,
                                  const void *input, uint32_t rows);
int celosia_busy(const celosia_t *it);
enum celosia_result celosia_end(const celosia_t *it, const celosia_model_t *model, void *output);
void celosia_abort(const celosia_t *it); /* stops a run; the model stays loaded */

/* The steps of an inference: read or write a register at a byte offset; write or read bytes of
 * external memory from an address on; write an image from the first byte on, and a program from the
 * first word on; check that the accelerator is present and idle; run from a word to the end. */
uint32_t celosia_get(const celosia_t *it, uint32_t offset);
void celosia_set(const celosia_t *it, uint32_t offset, uint32_t value);
void celosia_give(const celosia_t *it, uint32_t addr, const uint8_t *data, uint32_t bytes);
void celosia_take(const celosia_t *it, uint32_t addr, uint8_t *data, uint32_t bytes);
void celosia_image(const celosia_t *it, const uint32_t *image, uint32_t bytes);
void celosia_program(const celosia_t *it, const uint32_t *words, uint32_t count);
enum celosia_result celosia_present(const celosia_t *it, uint32_t memory_bytes);
enum celosia_result celosia_start(const celosia_t *it, uint32_t word);

/* The register STATUS, and the cycles of the last run. */
uint32_t celosia_status(const celosia_t *it);
uint64_t celosia_cycles(const celosia_t *it);

/* Convert real numbers to integers (to nearest, ties to even, saturated) and back. */
void celosia_quantize(const celosia_tensor_t *tensor, const float *values, size_t count, void *to);
void celosia_dequantize(const celosia_tensor_t *tensor, const void *from, size_t count,
                        float *values);

/* Returns the column of a row's largest element, the first one if several are equal. */
uint32_t celosia_largest(const celosia_tensor_t *tensor, const void *row);

#ifdef __cplusplus
}
#endif

#endif
