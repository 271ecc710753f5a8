// PSRAM with HyperBus on the pins of a board's top level, which ends the program where one of its data sheet's
// times is broken: the rules of tb/devices/psram.py. The macros PSRAM_NAME are the fields of
// celosia.tb.devices.data_sheets.PsramSheet (nanoseconds, PSRAM_VCS and PSRAM_CSM microseconds) with
// the periods and the fastest clock (MHz) of each latency's code, PSRAM_CLOCK is the machine's clock (Hz).

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <vector>

class Psram {
   public:
    Psram() : memory_(size_t{2 * PSRAM_DIES} * kPlaces) {
        for (size_t place = 0; place < memory_.size(); ++place) memory_[place] = place * 2654435761u >> 8;
    }

    // Of each two bytes the first die holds the first one.
    void fill(const char* path) {
        std::FILE* file = std::fopen(path, "rb");
        check(file != nullptr, "its contents cannot be read");
        size_t byte = 0;
        for (int value; (value = std::fgetc(file)) != EOF; ++byte) memory_.at(byte) = value;
        std::fclose(file);
    }

    // Takes the pins after a half cycle has begun. What an edge of the clock brings is there a half cycle later.
    void step(Vtop& top) {
        noise_ = noise_ * 1664525u + 1013904223u;
        if (coming_) dq_ = next_dq_, rwds_ = next_rwds_;
        coming_ = false;
        watch(dq_changed_, dq_before_, top.psram_dq_oe << 16 | top.psram_dq_o, "tIH of DQ", top);
        watch(mask_changed_, mask_before_, top.psram_rwds_oe << 16 | top.psram_rwds_o, "tIH of RWDS", top);
        check(top.psram_ck_n != top.psram_ck, "CK# is not CK's complement");
        if (top.psram_reset_n != reset_) reset(top.psram_reset_n);
        if (top.psram_cs_n != select_) {
            check(!top.psram_ck, "CS# changes while CK is high");
            select_ = top.psram_cs_n;
            select_ ? end() : start();
            selected_ = now_;
        }
        if (top.psram_ck != clock_) {
            check(!select_, "an edge of CK without a command");
            clock_ = top.psram_ck;
            edge(top);
            clocked_ = now_;
        }
        if (!select_) check((now_ - selected_) * kHalf <= PSRAM_CSM * 1e3 + 1e-6, "tCSM");
        check(!(drives_ && top.psram_dq_oe), "DQ is driven from both sides");
        check(!(strobes_ && top.psram_rwds_oe), "RWDS is driven from both sides");
        top.psram_dq_i = drives_ && !coming_ ? dq_ : noise_ >> 8;
        top.psram_rwds_i = strobes_ && !coming_ ? rwds_ : noise_ >> 4 & kDies;
        ++now_;
    }

   private:
    static constexpr double kHalf = 5e8 / PSRAM_CLOCK;
    static constexpr uint64_t kPlaces = uint64_t{PSRAM_ROWS} * PSRAM_COLUMNS;
    static constexpr int kCommand = 6;
    static constexpr uint32_t kDies = (1 << PSRAM_DIES) - 1;
    static constexpr int64_t kNever = -(int64_t{1} << 40), kNoData = 1 << 30;

    void check(bool held, const char* rule) const {
        if (held) return;
        std::fprintf(stderr, "PSRAM: %s, in half cycle %lld\n", rule, static_cast<long long>(now_));
        std::exit(1);
    }

    void since(int64_t before, double least, const char* rule) const {
        check((now_ - before) * kHalf + 1e-6 >= least, rule);
    }

    void watch(int64_t& changed, uint32_t& before, uint32_t after, const char* rule, const Vtop& top) {
        if (after == before) return;
        if (!top.psram_cs_n) since(clocked_, PSRAM_HOLD, rule);
        changed = now_;
        before = after;
    }

    void reset(bool high) {
        if (high) since(reset_at_, PSRAM_RP, "tRP");
        awake_ = high ? now_ + int64_t(std::ceil(PSRAM_VCS * 1e3 / kHalf - 1e-9)) : kNever;
        reset_at_ = now_;
        reset_ = high;
    }

    void start() {
        check(awake_ != kNever && now_ >= awake_, "a command before the chip is awake (tVCS)");
        since(selected_, PSRAM_CSHI, "tCSHI");
        since(selected_, PSRAM_RWR, "tRWR");
        edge_ = 0;
        command_ = 0;
        twice_ = fixed_ || noise_ >> 30 == 0;
        strobes_ = true;
        rwds_ = twice_ ? kDies : 0;
    }

    void end() {
        since(clocked_, PSRAM_CSH, "tCSH");
        check(edge_ > begin_ && (edge_ - begin_) % 2 == 0, "CS# rises before data moved, or within a column");
        check(!coming_, "CS# rises before the last data came");
        begin_ = kNoData;
        drives_ = strobes_ = false;
    }

    void edge(const Vtop& top) {
        const int64_t edge = edge_++;
        check(top.psram_ck == (edge % 2 == 0), "CK's first edge is none that rises");
        if (edge == 0) since(selected_, PSRAM_CSS, "tCSS");
        if (edge > 0) check(now_ - clocked_ == 2, "CK is not even");
        if (edge < kCommand) {
            const uint32_t bytes = taken(top.psram_dq_oe, top.psram_dq_o, dq_changed_, "tIS of a command");
            for (int die = 1; die < PSRAM_DIES; ++die)
                check((bytes >> 8 * die & 0xff) == (bytes & 0xff), "the dies get different commands");
            command_ = command_ << 8 | (bytes & 0xff);
            if (edge == kCommand - 1) decode();
        } else if (command_ >> 46 & 1) {
            check(!top.psram_rwds_oe, "RWDS is driven while a register is written");
            configure(edge - begin_, taken(top.psram_dq_oe, top.psram_dq_o, dq_changed_, "tIS of a register") & 0xff);
        } else if (edge >= begin_) {
            move(edge - begin_, top);
        } else if (edge == begin_ - 1 && !(command_ >> 47)) {
            check(taken(top.psram_rwds_oe, top.psram_rwds_o, mask_changed_, "tIS of RWDS") == 0,
                  "RWDS is not low before the data");
        }
    }

    uint32_t taken(bool driven, uint32_t value, int64_t changed, const char* rule) const {
        check(driven, "nobody drives what the chip takes");
        since(changed, PSRAM_SETUP, rule);
        return value;
    }

    void decode() {
        if (command_ >> 46 & 1) {
            check(command_ == 0x600001000000, "a register that is not known");
            begin_ = kCommand;
            strobes_ = false;
            return;
        }
        const uint64_t places = kPlaces - 1;
        check(!(command_ & ~(uint64_t{7} << 45 | places >> 3 << 16 | (places & 7))),
              "bits of the command that are reserved, or past the chip's end");
        check(command_ >> 45 & 1, "the burst wraps");
        place_ = (command_ >> 16 << 3 & places) | (command_ & 7);
        check(latency_ * 4 * kHalf + 1e-6 >= PSRAM_ACC, "tACC");
        begin_ = 2 * (2 + (twice_ ? 2 : 1) * latency_);
        strobes_ = command_ >> 47;
        rwds_ = 0;
    }

    void configure(int64_t place, uint32_t byte) {
        check(place < 2, "more than a register's two bytes");
        if (place == 0) return check(byte == 0x8f, "the chip is put to sleep, or bits that are reserved");
        double fastest = 0;
        switch (byte >> 4) {
            case 0x0: latency_ = PSRAM_PERIODS_0; fastest = PSRAM_MHZ_0; break;
            case 0x1: latency_ = PSRAM_PERIODS_1; fastest = PSRAM_MHZ_1; break;
            case 0xe: latency_ = PSRAM_PERIODS_E; fastest = PSRAM_MHZ_E; break;
            case 0xf: latency_ = PSRAM_PERIODS_F; fastest = PSRAM_MHZ_F; break;
        }
        check(PSRAM_CLOCK / 2 <= fastest * 1e6, "tCK, or a latency that the chip has not");
        fixed_ = byte >> 3 & 1;
        check(fixed_ || PSRAM_DIES == 1, "dies side by side do not move in step");
    }

    void move(int64_t edge, const Vtop& top) {
        const uint64_t column = place_ + edge / 2;
        check(column / PSRAM_COLUMNS == place_ / PSRAM_COLUMNS, "the burst leaves its row");
        uint8_t* bytes = &memory_[(2 * column + edge % 2) * PSRAM_DIES];
        if (command_ >> 47) {
            check(2 * kHalf + 1e-6 >= PSRAM_CKD, "tCKD");
            next_dq_ = 0;
            for (int die = 0; die < PSRAM_DIES; ++die) next_dq_ |= bytes[die] << 8 * die;
            next_rwds_ = edge % 2 ? 0 : kDies;
            drives_ = coming_ = true;
            return;
        }
        const uint32_t data = taken(top.psram_dq_oe, top.psram_dq_o, dq_changed_, "tIS of data");
        const uint32_t mask = taken(top.psram_rwds_oe, top.psram_rwds_o, mask_changed_, "tIS of a mask");
        for (int die = 0; die < PSRAM_DIES; ++die)
            if (!(mask >> die & 1)) bytes[die] = data >> 8 * die;
    }

    std::vector<uint8_t> memory_;
    int64_t now_ = 0, selected_ = kNever, clocked_ = kNever, reset_at_ = 0, awake_ = kNever;
    int64_t dq_changed_ = kNever, mask_changed_ = kNever, edge_ = 0, begin_ = kNoData, latency_ = 6;
    uint64_t command_ = 0, place_ = 0;
    uint32_t dq_ = 0, rwds_ = 0, next_dq_ = 0, next_rwds_ = 0, noise_ = 1, dq_before_ = 0, mask_before_ = 0;
    bool reset_ = false, select_ = true, clock_ = false, twice_ = false, fixed_ = true;
    bool drives_ = false, strobes_ = false, coming_ = false;
};
