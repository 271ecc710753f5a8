// A chip of SPI flash on the pins of a board's top level, which ends the program where one of its data
// sheet's times is broken: the rules of tb/devices/flash.py. The macros FLASH_NAME are the fields of
// celosia.tb.devices.data_sheets.FlashSheet, FLASH_CLOCK (Hz), FLASH_LANES, FLASH_ADDR, from which on it holds a
// file, and FLASH_BOARD_NS, what a bit's way back takes. At first it is in power-down, and was left within
// addresses of four bytes, with which it also begins at power-on where it has a command that ends them.

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <vector>

class Flash {
   public:
    explicit Flash(const char* path) : memory_(FLASH_SIZE, 0xff) {
        std::FILE* file = std::fopen(path, "rb");
        check(file != nullptr, "its image cannot be read");
        size_t place = FLASH_ADDR;
        for (int value; (value = std::fgetc(file)) != EOF; ++place) memory_.at(place) = value;
        std::fclose(file);
    }

    void step(Vtop& top) {
        check(!(driven_ & top.flash_dq_oe), "a data line is driven from both sides");
        if (!top.flash_cs_n) {
            if (cs_n_) select();
            if (top.flash_sck && !sck_) rise(top);
            if (!top.flash_sck && sck_) fall();
        } else if (!cs_n_) {
            deselect();
        }
        sck_ = top.flash_sck;
        cs_n_ = top.flash_cs_n;
        noise_ = noise_ * 1664525u + 1013904223u;
        const bool steady = now_ - changed_ + 1e-6 >= FLASH_CLQV + FLASH_BOARD_NS - kPeriod;
        const uint32_t known = steady ? driven_ : 0;
        top.flash_dq_i = (value_ & known) | (noise_ >> 16 & 15 & ~known);
        now_ += kPeriod;
    }

   private:
    static constexpr double kPeriod = 1e9 / FLASH_CLOCK;
    static constexpr double kNever = -1e15;
    static constexpr uint64_t kWake = 0xab, kRead = FLASH_LANES == 4 ? 0x6b : 0x0b;
    static constexpr uint64_t kEnableReset = 0x66, kReset = 0x99, kNone = 0xff;

    void check(bool held, const char* rule) const {
        if (held) return;
        std::fprintf(stderr, "Flash: %s, after %.0f ns\n", rule, now_);
        std::exit(1);
    }

    void since(double before, double least, const char* rule) const {
        check(now_ - before + 1e-6 >= least, rule);
    }

    void select() {
        since(awake_, 0, "a command before the chip is awake");
        since(deselected_, FLASH_SHSL, "tSHSL");
        selected_ = now_;
        clocks_ = sent_ = code_ = 0;
    }

    void rise(Vtop& top) {
        since(selected_, FLASH_SLCH, "tSLCH");
        since(fell_, 0.45e3 / FLASH_FREQUENCY, "tCLL");
        since(rose_, 1e3 / FLASH_FREQUENCY, "clock's period");
        rose_ = now_;
        if (clocks_ < 40) {
            if (clocks_ < 32) check(top.flash_dq_oe & 1, "nobody drives the command");
            sent_ = sent_ << 1 | (top.flash_dq_o & 1);
        }
        if (++clocks_ == 8) {
            code_ = sent_;
            check(!asleep_ || code_ != kRead, "a command in power-down");
        }
    }

    void fall() {
        since(rose_, 0.45e3 / FLASH_FREQUENCY, "tCLH");
        fell_ = now_;
        const int address = four_ ? 32 : 24;
        if (clocks_ == uint64_t(8 + address)) place_ = sent_ & ((uint64_t{1} << address) - 1);
        if (clocks_ < uint64_t(16 + address) || code_ != kRead) return;
        const uint64_t bit = (clocks_ - 16 - address) * FLASH_LANES;
        const uint64_t place = place_ + bit / 8;
        const uint32_t byte = memory_.at(place % memory_.size());
        const uint32_t bits = byte >> (8 - FLASH_LANES - bit % 8);
        value_ = FLASH_LANES == 4 ? bits & 15 : (bits & 1) << 1;
        driven_ = FLASH_LANES == 4 ? 15 : 2;
        changed_ = now_;
    }

    void deselect() {
        since(rose_, FLASH_CHSH, "tCHSH");
        const bool whole = clocks_ == 8;
        if (whole && code_ == kWake) {
            asleep_ = false;
            awake_ = now_ + FLASH_RES1 * 1e3;
        } else if (whole && !asleep_ && code_ == kReset && enabled_) {
            four_ = FLASH_EXIT_4BYTE;
            awake_ = now_ + FLASH_RST * 1e3;
        } else if (whole && !asleep_ && code_ == FLASH_EXIT_4BYTE) {
            four_ = false;
        } else if (clocks_ >= 8 && !asleep_) {
            check(code_ == kNone || (whole ? code_ == kEnableReset || code_ == kReset : code_ == kRead),
                  "an unknown command");
        }
        enabled_ = whole && !asleep_ && code_ == kEnableReset;
        deselected_ = now_;
        driven_ = 0;
    }

    std::vector<uint8_t> memory_;
    double now_ = 0, rose_ = kNever, fell_ = kNever, selected_ = kNever, deselected_ = kNever;
    double changed_ = kNever, awake_ = FLASH_VSL * 1e3;
    uint64_t clocks_ = 0, sent_ = 0, code_ = 0, place_ = 0;
    uint32_t driven_ = 0, value_ = 0, noise_ = 1;
    bool sck_ = false, cs_n_ = true, asleep_ = true, four_ = FLASH_EXIT_4BYTE, enabled_ = false;
};
