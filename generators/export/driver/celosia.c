#include "celosia.h"

#include "celosia_registers.h"

#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "the driver is for processors that store the least significant byte first"
#endif

/* Access to registers and memory. If they are not in the processor's address space, define
 * CELOSIA_IO as a header that has the four functions. */
#ifdef CELOSIA_IO
#include CELOSIA_IO
#else
static uint32_t celosia_read32(uintptr_t addr) { return *(volatile uint32_t *)addr; }
static uint8_t celosia_read8(uintptr_t addr) { return *(volatile uint8_t *)addr; }
static void celosia_write32(uintptr_t addr, uint32_t value) { *(volatile uint32_t *)addr = value; }
static void celosia_write8(uintptr_t addr, uint8_t value) { *(volatile uint8_t *)addr = value; }
#endif

/* Memory is written before a run starts, and read after it; CELOSIA_FENCE() is what orders it on a
 * processor that none of these are for. ARM before version 6, and Thumb of version 6, has no
 * instruction for it and keeps the order by itself: the compiler must, too. */
#ifdef CELOSIA_FENCE
#define FENCE() CELOSIA_FENCE()
#elif defined(__ARM_ARCH) && \
    (__ARM_ARCH < 6 || (__ARM_ARCH == 6 && defined(__thumb__) && !defined(__ARM_ARCH_6M__)))
#define FENCE() __asm__ volatile("" ::: "memory")
#elif defined(__GNUC__)
#define FENCE() __sync_synchronize()
#else
#define FENCE() ((void)0)
#endif

#define OFFSET(name) ((uint32_t)offsetof(celosia_registers_t, name))

static uint32_t size_of(const celosia_tensor_t *tensor) { return tensor->bits == 16 ? 2 : 1; }

uint32_t celosia_get(const celosia_t *it, uint32_t offset) {
    return celosia_read32(it->registers + offset);
}

void celosia_set(const celosia_t *it, uint32_t offset, uint32_t value) {
    celosia_write32(it->registers + offset, value);
}

/* Writes bytes to external memory, as whole words where possible. */
void celosia_give(const celosia_t *it, uint32_t addr, const uint8_t *data, uint32_t bytes) {
    uint32_t done = 0;
    for (; addr % 4 == 0 && bytes - done >= 4; addr += 4, done += 4) {
        const uint8_t *from = data + done;
        celosia_write32(it->memory + addr, (uint32_t)from[0] | (uint32_t)from[1] << 8 |
                                               (uint32_t)from[2] << 16 | (uint32_t)from[3] << 24);
    }
    for (; done < bytes; addr++, done++) celosia_write8(it->memory + addr, data[done]);
}

uint32_t celosia_status(const celosia_t *it) { return celosia_get(it, OFFSET(STATUS)); }

int celosia_busy(const celosia_t *it) {
    return (celosia_status(it) & CELOSIA_REGISTERS__STATUS__BUSY_bm) != 0;
}

void celosia_abort(const celosia_t *it) {
    celosia_set(it, OFFSET(CONTROL), CELOSIA_REGISTERS__CONTROL__ABORT_bm);
}

/* Waits until the accelerator is idle; returns 0 if that takes too many polls. */
static int idle(const celosia_t *it) {
    for (uint32_t polls = 0; celosia_busy(it);)
        if (it->polls && ++polls == it->polls) return 0;
    return 1;
}

uint64_t celosia_cycles(const celosia_t *it) {
    return celosia_get(it, OFFSET(CYCLES_LOW)) | (uint64_t)celosia_get(it, OFFSET(CYCLES_HIGH)) << 32;
}

void celosia_take(const celosia_t *it, uint32_t addr, uint8_t *data, uint32_t bytes) {
    FENCE();
    for (uint32_t place = 0; place < bytes; place++)
        data[place] = celosia_read8(it->memory + addr + place);
}

void celosia_image(const celosia_t *it, const uint32_t *image, uint32_t bytes) {
    const uint32_t whole = bytes & ~(uint32_t)3;
    for (uint32_t word = 0; word < bytes / 4; word++)
        celosia_write32(it->memory + 4 * (uintptr_t)word, image[word]);
    celosia_give(it, whole, (const uint8_t *)image + whole, bytes % 4);
}

void celosia_program(const celosia_t *it, const uint32_t *words, uint32_t count) {
    celosia_set(it, OFFSET(PROGRAM_ADDR), 0);
    for (uint32_t word = 0; word < count; word++) celosia_set(it, OFFSET(PROGRAM_DATA), words[word]);
}

enum celosia_result celosia_present(const celosia_t *it, uint32_t memory_bytes) {
    if (celosia_get(it, OFFSET(ID)) != CELOSIA_REGISTERS__ID__VALUE_reset) return CELOSIA_ABSENT;
    if (memory_bytes > it->memory_bytes) return CELOSIA_MEMORY;
    return idle(it) ? CELOSIA_OK : CELOSIA_TIMEOUT;
}

enum celosia_result celosia_start(const celosia_t *it, uint32_t word) {
    if (!idle(it)) return CELOSIA_TIMEOUT; /* after an abort it is busy for a while */
    FENCE();
    celosia_set(it, OFFSET(PC), word);
    celosia_set(it, OFFSET(CONTROL), CELOSIA_REGISTERS__CONTROL__START_bm);
    if (!idle(it)) {
        celosia_abort(it);
        return CELOSIA_TIMEOUT;
    }
    if (celosia_status(it) & CELOSIA_REGISTERS__STATUS__ERROR_bm) return CELOSIA_FAILED;
    return CELOSIA_OK;
}

enum celosia_result celosia_load(const celosia_t *it, const celosia_model_t *model) {
    const enum celosia_result found = celosia_present(it, model->memory_bytes);
    if (found != CELOSIA_OK) return found;
    celosia_image(it, model->image, model->image_bytes);
    celosia_program(it, model->program, model->program_words);
    celosia_set(it, OFFSET(INTERRUPT), celosia_get(it, OFFSET(INTERRUPT)));
    return CELOSIA_OK;
}

enum celosia_result celosia_begin(const celosia_t *it, const celosia_model_t *model,
                                  const void *input, uint32_t rows) {
    const celosia_tensor_t *tensor = &model->input;
    const uint32_t row_bytes = tensor->columns * size_of(tensor);
    const celosia_request_t *request = model->requests;
    const celosia_request_t *end = request + model->request_count;
    while (request != end && request->rows != rows) request++;
    if (request == end) return CELOSIA_ROWS;
    if (celosia_busy(it)) return CELOSIA_BUSY;
    celosia_give(it, tensor->addr, (const uint8_t *)input, rows * row_bytes);
    /* Missing rows are 0. */
    for (uint32_t place = rows * row_bytes; place < tensor->rows * row_bytes; place++) {
        const uint32_t byte = place % size_of(tensor);
        celosia_write8(it->memory + tensor->addr + place, (uint8_t)(tensor->zero >> 8 * byte));
    }
    for (uint32_t index = 0; index < request->piece_count; index++) {
        const celosia_piece_t *piece = &request->pieces[index];
        celosia_give(it, piece->addr, piece->data, piece->bytes);
    }
    for (uint32_t index = 0; index < request->setting_count; index++)
        celosia_set(it, request->settings[index].offset, request->settings[index].value);
    const uint32_t ended = celosia_get(it, OFFSET(INTERRUPT));
    celosia_set(it, OFFSET(INTERRUPT), ended);
    FENCE();
    const int done = ended == CELOSIA_REGISTERS__INTERRUPT__DONE_bm;
    celosia_set(it, OFFSET(PC), done ? model->again : model->start);
    celosia_set(it, OFFSET(CONTROL), CELOSIA_REGISTERS__CONTROL__START_bm);
    return CELOSIA_OK;
}

enum celosia_result celosia_end(const celosia_t *it, const celosia_model_t *model, void *output) {
    const celosia_tensor_t *tensor = &model->output;
    const uint32_t bytes = tensor->rows * tensor->columns * size_of(tensor);
    const uint32_t status = celosia_status(it);
    if (status & CELOSIA_REGISTERS__STATUS__BUSY_bm) return CELOSIA_BUSY;
    if (status & CELOSIA_REGISTERS__STATUS__ERROR_bm) return CELOSIA_FAILED;
    celosia_take(it, tensor->addr, (uint8_t *)output, bytes);
    return CELOSIA_OK;
}

enum celosia_result celosia_run(const celosia_t *it, const celosia_model_t *model,
                                const void *input, uint32_t rows, void *output) {
    if (!idle(it)) return CELOSIA_TIMEOUT; /* after an abort it is busy for a while */
    const enum celosia_result begun = celosia_begin(it, model, input, rows);
    if (begun != CELOSIA_OK) return begun;
    if (!idle(it)) {
        celosia_abort(it);
        return CELOSIA_TIMEOUT;
    }
    return celosia_end(it, model, output);
}

static int32_t element(const celosia_tensor_t *tensor, const void *from, size_t index) {
    return size_of(tensor) == 1 ? ((const int8_t *)from)[index] : ((const int16_t *)from)[index];
}

void celosia_quantize(const celosia_tensor_t *tensor, const float *values, size_t count, void *to) {
    const int32_t half = (int32_t)1 << (tensor->bits - 1);
    for (size_t index = 0; index < count; index++) {
        double real = (double)values[index] / tensor->scale;
        if (!(real > -131072.0)) real = -131072.0; /* saturates; so does NaN */
        if (real > 131072.0) real = 131072.0;
        int32_t whole = (int32_t)real;
        const double rest = real - whole;
        if (rest > 0.5 || (rest == 0.5 && whole % 2 != 0)) whole++;
        if (rest < -0.5 || (rest == -0.5 && whole % 2 != 0)) whole--;
        whole += tensor->zero;
        if (whole < -half) whole = -half;
        if (whole > half - 1) whole = half - 1;
        if (size_of(tensor) == 1)
            ((int8_t *)to)[index] = (int8_t)whole;
        else
            ((int16_t *)to)[index] = (int16_t)whole;
    }
}

void celosia_dequantize(const celosia_tensor_t *tensor, const void *from, size_t count,
                        float *values) {
    for (size_t index = 0; index < count; index++)
        values[index] = (float)(tensor->scale * (element(tensor, from, index) - tensor->zero));
}

uint32_t celosia_largest(const celosia_tensor_t *tensor, const void *row) {
    uint32_t place = 0;
    for (uint32_t column = 1; column < tensor->columns; column++)
        if (element(tensor, row, column) > element(tensor, row, place)) place = column;
    return place;
}
