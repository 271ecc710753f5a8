/* Classifies samples of the digits on the accelerator, and prints what it found.
 *
 * A line for each image: the digit, the one that is most likely, and the output's integers; then
 * how many outputs are those that the golden model gives.
 */
#include "csr.h"
#include "digits_model.h"
#include "places.h"

static const celosia_t machine = {CELOSIA_REGISTERS, CELOSIA_MEMORY, CELOSIA_MEMORY_BYTES, 0};

static volatile uint32_t *const uart_data = (volatile uint32_t *)CSR_UART_RXTX_ADDR;
static volatile uint32_t *const uart_full = (volatile uint32_t *)CSR_UART_TXFULL_ADDR;

static void put(char letter) {
    while (*uart_full) {}
    *uart_data = (uint8_t)letter;
}

static void say(const char *text) {
    while (*text) put(*text++);
}

static void say_number(int32_t value) {
    char digits[12];
    int count = 0;
    uint32_t rest = value < 0 ? 0u - (uint32_t)value : (uint32_t)value;
    if (value < 0) put('-');
    do digits[count++] = (char)('0' + rest % 10);
    while (rest /= 10);
    while (count) put(digits[--count]);
}

int main(void) {
    digits_input_t input[DIGITS_INPUTS];
    digits_output_t output[DIGITS_OUTPUTS];
    int equal = 0;
    enum celosia_result result = celosia_load(&machine, &digits_model);
    for (int index = 0; index < DIGITS_SAMPLES && result == CELOSIA_OK; index++) {
        int same = 1;
        celosia_quantize(&digits_model.input, digits_sample_inputs[index], DIGITS_INPUTS, input);
        result = celosia_run(&machine, &digits_model, input, digits_sample_rows[index], output);
        if (result != CELOSIA_OK) break;
        say("image ");
        say_number(index);
        say(" is ");
        say(digits_model.labels[celosia_largest(&digits_model.output, output)]);
        say(":");
        for (int column = 0; column < DIGITS_OUTPUTS; column++) {
            say(" ");
            say_number(output[column]);
            same &= output[column] == digits_sample_outputs[index][column];
        }
        say(", ");
        say_number((int32_t)celosia_cycles(&machine));
        say(" cycles\n");
        equal += same;
    }
    if (result != CELOSIA_OK) {
        say("error ");
        say_number((int32_t)result);
        say(", STATUS ");
        say_number((int32_t)celosia_status(&machine));
        say("\n");
    }
    say_number(equal);
    say(" outputs of ");
    say_number(DIGITS_SAMPLES);
    say(" are the golden model's\n\004"); /* the simulation ends with this character */
    return 0;
}
