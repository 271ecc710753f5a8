// Writes a file to the model of DDR3 that stands beside a board's top level. The macros DDR3_NAME are the
// fields of celosia.arch.ddr3.Ddr3Chip.
//
// LiteDRAM's model has a memory for each bank, of words as wide as a block of eight columns. Addresses are
// of rows, banks and columns, from their highest bit on. The model leaves every other word unused, as it
// counts four columns for a word.

#include <cstdint>
#include <cstdio>
#include <cstdlib>

#include "Vtop___024root.h"

inline void fill_ddr3(Vtop& top, const char* path) {
    constexpr int kBytes = DDR3_DATA_WIDTH;  // of a block
    constexpr int kBlocks = DDR3_COL_BITS - 3;  // bits of a block's place in a row
    std::FILE* file = std::fopen(path, "rb");
    if (!file) {
        std::fprintf(stderr, "DDR3: its contents cannot be read\n");
        std::exit(1);
    }
    auto& root = *top.rootp;
    auto word = [&root](uint64_t bank, uint64_t place) -> auto& {
#define MEM(n) root.top__DOT__ddr3__DOT__mem##n[place]
        switch (bank) {
            case 0: return MEM();
            case 1: return MEM(_1);
            case 2: return MEM(_2);
            case 3: return MEM(_3);
            case 4: return MEM(_4);
            case 5: return MEM(_5);
            case 6: return MEM(_6);
            default: return MEM(_7);
        }
#undef MEM
    };
    uint64_t byte = 0;
    for (int value; (value = std::fgetc(file)) != EOF; ++byte) {
        const uint64_t block = byte / kBytes;
        const uint64_t col = block & ((1 << kBlocks) - 1);
        const uint64_t bank = block >> kBlocks & ((1 << DDR3_BANK_BITS) - 1);
        const uint64_t row = block >> (kBlocks + DDR3_BANK_BITS);
        uint32_t& part = word(bank, (row << kBlocks | col) << 1)[byte % kBytes / 4];
        const int lane = byte % 4 * 8;
        part = (part & ~(0xffu << lane)) | uint32_t(value) << lane;
    }
    std::fclose(file);
}
