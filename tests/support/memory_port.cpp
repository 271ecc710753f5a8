// Moves random bursts over an external memory port, each half with pauses of its own, and compares them
// with bytes in an array; then reads in order, for the rate. The macro WIDTH is the port's width (bits).
// Arguments: a seed, the number of bursts, the bytes of memory that they touch.
// It ends with code 3 where the memory says that it failed, with 4 where a word comes that nobody asked for,
// and with 5 where nothing has moved for long.
// The output is a line: mismatches, cycles until the memory was ready, cycles and words of reading in order.

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <random>
#include <vector>

#include "Vtop.h"
#include "verilated.h"

namespace {

constexpr int BYTES = WIDTH / 8;
constexpr uint64_t LONG = 1 << 20;  // cycles, more than the memory's start takes
using Word = std::vector<uint8_t>;

// Bits from a place on of what Verilator makes of a port, whatever its width.
template <typename Port>
void set(Port& port, int place, int bits, uint64_t value) {
    for (int bit = 0; bit < bits; ++bit, ++place) {
        const bool one = value >> bit & 1;
        if constexpr (std::is_integral_v<Port>) {
            const Port mask = Port(1) << place;
            port = one ? port | mask : port & ~mask;
        } else {
            const uint32_t mask = 1u << place % 32;
            port[place / 32] = one ? port[place / 32] | mask : port[place / 32] & ~mask;
        }
    }
}

template <typename Port>
uint8_t byte(const Port& port, int index) {
    if constexpr (std::is_integral_v<Port>) return port >> 8 * index;
    else return port[index / 4] >> index % 4 * 8;
}

class Bench {
   public:
    Bench(uint64_t seed, uint64_t size) : random_(seed), bytes_(size), known_(size) {}

    uint64_t mismatches = 0;
    uint64_t cycles = 0;

    void start() {
        top_.rst = 1;
        for (int cycle = 0; cycle < 8; ++cycle) step();
        top_.rst = 0;
        while (!top_.ready) step();
        if (top_.failed) std::exit(3);
    }

    void run(uint64_t bursts) {
        while (bursts || busy()) {
            if (cycles % 512 == 0) {
                const double pauses[] = {0, 0, 0.5, 0.95};
                for (double& pause : pauses_) pause = pauses[random_() % 4];
            }
            if (bursts && queue_.size() < 4 && writes_.size() < 2) {
                --bursts;
                ask(random_() % 2, 0);
            }
            step();
        }
    }

    uint64_t in_order(uint64_t bursts) {
        for (double& pause : pauses_) pause = 0;
        for (uint64_t burst = 0; burst < bursts; ++burst) reads_.push_back({burst * 256 * BYTES, 255});
        while (queue_.empty()) step();
        const uint64_t began = cycles;
        while (busy()) step();
        return cycles - began;
    }

   private:
    struct Burst {
        uint64_t addr;
        int last;
    };
    enum { READ_REQUEST, READ_DATA, WRITE_REQUEST, WRITE_DATA };

    bool busy() const { return queue_.size() || reads_.size() || writes_.size() || data_.size() || unwritten_; }

    bool pausing(int which) { return std::uniform_real_distribution<>()(random_) < pauses_[which]; }

    // A burst at a random place: a read of bytes that no write under way touches, or a write of
    // bytes that no read waits for.
    void ask(bool writes, int tries) {
        if (tries == 20) return;
        const int lengths[] = {0, 1, 2, 7, 40, 255};
        const int last = lengths[random_() % 6];
        const uint64_t spread = random_() % 2 ? 4096 : bytes_.size();
        const uint64_t words = spread / BYTES;
        if (words <= uint64_t(last)) return ask(writes, tries + 1);
        const uint64_t addr = random_() % (words - last) * BYTES;
        const uint64_t end = addr + uint64_t(last + 1) * BYTES;
        for (const auto& other : under_way_)
            if ((writes || other.second) && addr < other.first.addr + uint64_t(other.first.last + 1) * BYTES &&
                other.first.addr < end)
                return ask(writes, tries + 1);
        under_way_.push_back({{addr, last}, writes});
        (writes ? writes_ : reads_).push_back({addr, last});
        if (!writes) return;
        for (int word = 0; word <= last; ++word) {
            Word value(BYTES);
            uint64_t mask = random_() % 3 ? ~0ull : random_();
            for (int lane = 0; lane < BYTES; ++lane) {
                value[lane] = random_();
                if (!(mask >> lane & 1)) continue;
                bytes_[addr + word * BYTES + lane] = value[lane];
                known_[addr + word * BYTES + lane] = true;
            }
            data_.push_back({value, mask});
        }
    }

    void finish(bool writes) {
        for (size_t place = 0; place < under_way_.size(); ++place)
            if (under_way_[place].second == writes) {
                under_way_.erase(under_way_.begin() + place);
                return;
            }
    }

    void step() {
        top_.clk = 0;
        if (!top_.rst && top_.ready) offer();
        top_.eval();
        const bool asked = top_.read_request_valid && top_.read_request_ready;
        const bool sent = top_.write_request_valid && top_.write_request_ready;
        const bool moved = top_.write_data_valid && top_.write_data_ready;
        if (top_.read_data_valid && top_.read_data_ready) take();
        if (asked || sent || moved || (top_.read_data_valid && top_.read_data_ready)) moved_ = cycles;
        if (cycles - moved_ > LONG) std::exit(5);
        if (asked) queue_.push_back({reads_.front().addr, reads_.front().last}), reads_.pop_front();
        if (sent) writes_.pop_front(), ++unwritten_;
        if (moved) data_.pop_front();
        if (top_.write_written) --unwritten_, finish(true);
        if (asked) reading_ = false;
        if (sent) writing_ = false;
        if (moved) moving_ = false;
        top_.clk = 1;
        top_.eval();
        ++cycles;
    }

    // What is offered stays so until it is taken.
    void offer() {
        if (!reading_) reading_ = reads_.size() && !pausing(READ_REQUEST);
        if (!writing_) writing_ = writes_.size() && !pausing(WRITE_REQUEST);
        if (!moving_) moving_ = data_.size() && !pausing(WRITE_DATA);
        top_.read_request_valid = reading_;
        top_.write_request_valid = writing_;
        top_.write_data_valid = moving_;
        if (reading_) request(top_.read_request_payload, reads_.front());
        if (writing_) request(top_.write_request_payload, writes_.front());
        if (moving_) {
            for (int lane = 0; lane < BYTES; ++lane)
                set(top_.write_data_payload, 8 * lane, 8, data_.front().first[lane]);
            set(top_.write_data_payload, WIDTH, BYTES, data_.front().second);
        }
        top_.read_data_ready = !pausing(READ_DATA);
    }

    template <typename Port>
    void request(Port& port, const Burst& burst) {
        set(port, 0, ADDR, burst.addr);
        set(port, ADDR, 8, burst.last);
    }

    void take() {
        if (queue_.empty()) std::exit(4);
        Burst& burst = queue_.front();
        for (int lane = 0; lane < BYTES; ++lane) {
            const uint64_t place = burst.addr + lane;
            if (place < bytes_.size() && known_[place] && byte(top_.read_data_payload, lane) != bytes_[place])
                ++mismatches;
        }
        burst.addr += BYTES;
        if (burst.last-- == 0) queue_.pop_front(), finish(false);
    }

    Vtop top_;
    std::mt19937_64 random_;
    std::vector<uint8_t> bytes_;
    std::vector<bool> known_;
    std::deque<Burst> reads_, writes_, queue_;
    std::deque<std::pair<Word, uint64_t>> data_;
    std::deque<std::pair<Burst, bool>> under_way_;
    double pauses_[4] = {};
    uint64_t moved_ = 0;  // cycle in which something did
    int unwritten_ = 0;
    bool reading_ = false, writing_ = false, moving_ = false;
};

}  // namespace

int main(int argc, char** argv) {
    if (argc != 4) return 2;
    Bench bench(std::strtoull(argv[1], nullptr, 10), std::strtoull(argv[3], nullptr, 10));
    bench.start();
    const uint64_t ready = bench.cycles;
    bench.run(std::strtoull(argv[2], nullptr, 10));
    const uint64_t bursts = 64;
    const uint64_t cycles = bench.in_order(bursts);
    std::printf("%llu %llu %llu %llu\n", static_cast<unsigned long long>(bench.mismatches),
                static_cast<unsigned long long>(ready), static_cast<unsigned long long>(cycles),
                static_cast<unsigned long long>(bursts * 256));
}
