// A chip of SDR SDRAM on the pins of a board's top level, which ends the program where one of its data
// sheet's times is broken: the rules of tb/devices/sdram.py. The macros SDRAM_NAME are the fields of
// celosia.tb.devices.data_sheets.SdramSheet (nanoseconds at SDRAM_CLOCK, in Hz, SDRAM_REF in milliseconds and
// SDRAM_POWER in microseconds), and the fastest clocks SDRAM_CL2 and SDRAM_CL3 (MHz).

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <limits>
#include <vector>

class Sdram {
   public:
    Sdram() {
        for (Bank& bank : banks_) bank.row = -1;
        memory_.resize(size_t{SDRAM_ROWS} * SDRAM_BANKS * SDRAM_COLUMNS);
        for (size_t place = 0; place < memory_.size(); ++place) memory_[place] = place * 2654435761u;
    }

    // Addresses are of rows, banks and columns, from their highest bit on.
    void fill(const char* path) {
        std::FILE* file = std::fopen(path, "rb");
        check(file != nullptr, "its contents cannot be read");
        size_t byte = 0;
        for (int value; (value = std::fgetc(file)) != EOF; ++byte) {
            const int lane = byte % (SDRAM_BITS / 8) * 8;
            uint32_t& word = memory_.at(byte / (SDRAM_BITS / 8));
            word = (word & ~(0xffu << lane)) | uint32_t(value) << lane;
        }
        std::fclose(file);
    }

    void step(Vtop& top) {
        top.sdram_dq_i = noise_ = noise_ * 1664525u + 1013904223u;
        if (!due_.empty() && due_.front().first == now_) {
            top.sdram_dq_i = due_.front().second;
            due_.pop_front();
            driven_ = now_;
        }
        if (top.sdram_dq_oe) check(now_ > driven_ + 1, "the data pins are driven from both sides");
        if (top.sdram_cke && !top.sdram_cs_n) {
            const int command = top.sdram_ras_n << 2 | top.sdram_cas_n << 1 | top.sdram_we_n;
            if (command != 7) run(command, top);
        }
        if (cas_) {
            const double average = SDRAM_REF * 1e6 / SDRAM_REFRESHES / kPeriod;
            check((now_ - mode_) / average - refreshes_ < 9, "more than eight refreshes are late");
            check(now_ - std::max(mode_, refreshed_) <= SDRAM_APART * average, "refreshes are far apart");
            for (const Bank& each : banks_)
                check(each.row < 0 || (now_ - each.activated) * kPeriod <= SDRAM_RAS_MAX, "tRAS(max)");
        }
        ++now_;
    }

   private:
    static constexpr double kPeriod = 1e9 / SDRAM_CLOCK;
    static constexpr int64_t kNever = std::numeric_limits<int64_t>::min() / 2;
    enum { kMode, kRefresh, kPrecharge, kActivate, kWrite, kRead };

    struct Bank {
        int64_t row;
        int64_t activated = kNever, precharged = kNever, written = kNever;
    };

    void check(bool held, const char* rule) const {
        if (held) return;
        std::fprintf(stderr, "SDRAM: %s, in cycle %lld\n", rule, static_cast<long long>(now_));
        std::exit(1);
    }

    void since(int64_t before, double least, const char* rule) const {
        check((now_ - before) * kPeriod + 1e-6 >= least, rule);
    }

    void run(int command, Vtop& top) {
        if (!started_) {
            since(0, SDRAM_POWER * 1e3, "a command before the chip is awake");
            check(command == kPrecharge, "the first command closes all rows");
            started_ = true;
        }
        since(refreshed_, SDRAM_RFC, "tRFC");
        since(moded_, SDRAM_MRD, "tMRD");
        Bank& bank = banks_[top.sdram_ba];
        if (command == kPrecharge) {
            for (Bank& each : banks_) {
                if (&each != &bank && !(top.sdram_a >> 10 & 1)) continue;
                if (each.row >= 0) {
                    since(each.activated, SDRAM_RAS, "tRAS");
                    since(each.written, SDRAM_WR, "tWR");
                }
                each.row = -1;
                each.precharged = now_;
            }
        } else if (command == kActivate) {
            check(cas_, "a row is opened before the mode register is set");
            check(bank.row < 0, "the bank has a row open");
            since(bank.precharged, SDRAM_RP, "tRP");
            since(bank.activated, SDRAM_RC, "tRC");
            for (Bank& each : banks_) since(each.activated, SDRAM_RRD, "tRRD");
            check(top.sdram_a < SDRAM_ROWS, "a row that the chip has not");
            bank.row = top.sdram_a;
            bank.activated = now_;
        } else if (command == kRead || command == kWrite) {
            access(command == kRead, bank, top);
        } else {
            for (Bank& each : banks_) {
                check(each.row < 0, "rows are open");
                since(each.precharged, SDRAM_RP, "tRP");
            }
            if (command == kRefresh) {
                ++refreshes_;
                refreshed_ = now_;
            } else {
                check(refreshes_ >= 2, "too few refreshes before the mode register is set");
                check((top.sdram_a & 7) == 0, "bursts are of one column");
                cas_ = top.sdram_a >> 4 & 7;
                check((cas_ == 3 && SDRAM_CLOCK <= SDRAM_CL3 * 1e6) || (cas_ == 2 && SDRAM_CLOCK <= SDRAM_CL2 * 1e6),
                      "CAS latency");
                moded_ = mode_ = now_;
                refreshes_ = 0;
            }
        }
    }

    void access(bool reads, Bank& bank, Vtop& top) {
        check(bank.row >= 0, "the bank has no row open");
        check(!(top.sdram_a >> 10 & 1), "the row would be closed behind the access");
        check(top.sdram_a < SDRAM_COLUMNS, "a column that the chip has not");
        since(bank.activated, SDRAM_RCD, "tRCD");
        const uint64_t place = (static_cast<uint64_t>(bank.row) * SDRAM_BANKS + top.sdram_ba) * SDRAM_COLUMNS + top.sdram_a;
        if (reads) {
            check(!top.sdram_dqm, "a column that is read is masked");
            due_.emplace_back(now_ + cas_, memory_[place]);
            return;
        }
        check(top.sdram_dq_oe, "nobody drives what is written");
        uint32_t mask = 0;
        for (int lane = 0; lane < SDRAM_BITS / 8; ++lane)
            if (!(top.sdram_dqm >> lane & 1)) mask |= 0xffu << 8 * lane;
        uint32_t& word = memory_[place];
        word = (word & ~mask) | (top.sdram_dq_o & mask);
        bank.written = now_;
    }

    Bank banks_[SDRAM_BANKS];
    std::vector<uint32_t> memory_;
    std::deque<std::pair<int64_t, uint32_t>> due_;
    int64_t now_ = 0, driven_ = kNever, refreshed_ = kNever, moded_ = kNever, mode_ = 0, refreshes_ = 0;
    uint32_t cas_ = 0, noise_ = 1;
    bool started_ = false;
};
