// A chip of SPI flash on the pins of a board's top level, which ends the program where one of its data
// sheet's times is broken: the rules of tests/support/flash.py. The macros FLASH_NAME are the fields of
// arch.flash.FlashChip (nanoseconds where the name has no unit), FLASH_CLOCK (Hz), FLASH_LANES,
// FLASH_ADDR, from which on it holds a file, and FLASH_BOARD_NS, what a bit's way back takes.

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
        const bool steady = now_ - changed_ + 1e-6 >= FLASH_VALID + FLASH_BOARD_NS - kPeriod;
        const uint32_t known = steady ? driven_ : 0;
        top.flash_dq_i = (value_ & known) | (noise_ >> 16 & 15 & ~known);
        now_ += kPeriod;
    }

   private:
    static constexpr double kPeriod = 1e9 / FLASH_CLOCK;
    static constexpr double kNever = -1e15;
    static constexpr uint64_t kWake = 0xab, kRead = FLASH_LANES == 4 ? 0x6b : 0x0b;

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
        since(deselected_, FLASH_DESELECT, "tSHSL");
        selected_ = now_;
        clocks_ = sent_ = 0;
    }

    void rise(Vtop& top) {
        since(selected_, FLASH_SELECT, "tSLCH");
        since(fell_, 0.45e3 / FLASH_MAX_MHZ, "tCLL");
        since(rose_, 1e3 / FLASH_MAX_MHZ, "clock's period");
        rose_ = now_;
        if (clocks_ < 32) {
            check(top.flash_dq_oe & 1, "nobody drives the command");
            sent_ = sent_ << 1 | (top.flash_dq_o & 1);
        }
        if (++clocks_ == 8) check(sent_ == (asleep_ ? kWake : kRead), "an unknown command");
    }

    void fall() {
        since(rose_, 0.45e3 / FLASH_MAX_MHZ, "tCLH");
        fell_ = now_;
        if (clocks_ < 40) return;
        const uint64_t bit = (clocks_ - 40) * FLASH_LANES;
        const uint64_t place = (sent_ & 0xffffff) + bit / 8;
        const uint32_t byte = memory_.at(place % memory_.size());
        const uint32_t bits = byte >> (8 - FLASH_LANES - bit % 8);
        value_ = FLASH_LANES == 4 ? bits & 15 : (bits & 1) << 1;
        driven_ = FLASH_LANES == 4 ? 15 : 2;
        changed_ = now_;
    }

    void deselect() {
        since(rose_, FLASH_SELECT, "tCHSH");
        check(clocks_ >= 8, "no command");
        if (asleep_) awake_ = now_ + FLASH_WAKE_US * 1e3;
        asleep_ = false;
        deselected_ = now_;
        driven_ = 0;
    }

    std::vector<uint8_t> memory_;
    double now_ = 0, rose_ = kNever, fell_ = kNever, selected_ = kNever, deselected_ = kNever;
    double changed_ = kNever, awake_ = FLASH_POWER_US * 1e3;
    uint64_t clocks_ = 0, sent_ = 0;
    uint32_t driven_ = 0, value_ = 0, noise_ = 1;
    bool sck_ = false, cs_n_ = true, asleep_ = true;
};
