// Runs the system until its firmware sends the character 4, and prints what it sends before.
// Argument: cycles after which it is given up.
#include <cstdint>
#include <cstdio>
#include <cstdlib>

#include "Vtop.h"
#include "verilated.h"

int main(int argc, char** argv) {
    if (argc != 2) return 2;
    const uint64_t limit = std::strtoull(argv[1], nullptr, 10);
    Vtop top;
    top.serial_source_ready = 1;
    top.serial_sink_valid = 0;
    for (uint64_t cycle = 0; cycle < limit; ++cycle) {
        top.sys_clk = 0;
        top.eval();
        top.sys_clk = 1;
        top.eval();
        if (!top.serial_source_valid) continue;
        if (top.serial_source_data == 4) {
            std::printf("%llu cycles of the system\n", static_cast<unsigned long long>(cycle));
            return 0;
        }
        std::putchar(top.serial_source_data);
        std::fflush(stdout);
    }
    std::printf("still at work after %llu cycles\n", static_cast<unsigned long long>(limit));
    return 1;
}
