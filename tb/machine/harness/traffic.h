// What a board's machine asks of its SDRAM in the cycles of a run, and what the chip's pins move in them: a line of
// JSON on standard error at each run's end. SDRAM_LAST is the place of "last" in a request.

#include <cstdint>
#include <cstdio>

#include "Vtop___024root.h"

// Verilator writes the second of two underscores as a code.
#define PORT(half, stream, name) at.top__DOT__memory__DOT__##half##___05F##stream##___05F##name

class Traffic {
   public:
    // Takes a cycle, before its edge.
    void step(const Vtop& top) {
        const Vtop___024root& at = *top.rootp;
        if (top.busy && !busy_) reading_ = {}, other_ = {}, cycles_ = 0;
        if (!top.busy && busy_) tell();
        busy_ = top.busy;
        ++cycles_;

        const bool asks = PORT(read, request, valid), writes = PORT(write, request, valid);
        const bool there = PORT(read, data, valid), taken = there && PORT(read, data, ready);
        const bool reads = unread_ || asks, only = !unwritten_ && !writes;
        const int command = top.sdram_ras_n << 2 | top.sdram_cas_n << 1 | top.sdram_we_n;
        const bool column = top.sdram_cke && !top.sdram_cs_n && (command == 4 || command == 5);
        // Words that the machine does not take hold the chip up, not it the machine.
        Phase* phase = reads && only && there == taken ? &reading_ : reads || !only ? &other_ : nullptr;
        if (phase) ++phase->cycles;
        // What was begun in a cycle is on the pins in the next one.
        if (before_) before_->columns += column;
        before_ = phase;
        if (asks && PORT(read, request, ready)) unread_ += (PORT(read, request, payload) >> SDRAM_LAST & 255) + 1;
        unread_ -= taken;
        unwritten_ += writes && PORT(write, request, ready);
        unwritten_ -= at.top__DOT__memory__DOT__write___05Fwritten;
    }

   private:
    struct Phase {
        uint64_t cycles = 0, columns = 0;
    };

    void tell() const {
        std::fprintf(stderr,
                     "{\"cycles\": %llu, \"reading_cycles\": %llu, \"reading_columns\": %llu, \"other_cycles\": %llu, "
                     "\"other_columns\": %llu}\n",
                     number(cycles_), number(reading_.cycles), number(reading_.columns), number(other_.cycles),
                     number(other_.columns));
    }

    static unsigned long long number(uint64_t value) { return value; }

    Phase reading_, other_;
    Phase* before_ = nullptr;
    uint64_t cycles_ = 0;
    int64_t unread_ = 0, unwritten_ = 0;  // words and bursts that were asked for
    bool busy_ = false;
};
