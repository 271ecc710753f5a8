// Runs with one bit flipped, each begun close to its fault and ended where it no longer matters.
//
// `sites.h` is generated: SITES, the registers and memories of the circuit, and PORTS, the address
// and enable of each memory whose words are read and written through registers.

#pragma once

#include <algorithm>
#include <cstddef>
#include <cstring>

#include "Vtop___024root.h"
#include "machine.h"
#include "sites.h"

// Verilator's own: all combinational logic from registers and memories, as at the first evaluation.
void Vtop___024root___eval_settle(Vtop___024root* root);

namespace {

enum End { AS_BEFORE, ENDED, GOES_ON };

struct Outcome {
    End end;
    uint64_t cycles;  // that were simulated
    uint32_t status;
    uint32_t corrected;
};

class FaultMachine : public Machine {
   public:
    using Machine::Machine;

    // Runs what was started to its end, and counts how often each register's bits change.
    std::vector<uint64_t> count_toggles(uint64_t limit) {
        top_.host__addr = STATUS_ADDR;
        std::vector<uint64_t> found(std::size(SITES));
        std::vector<uint8_t> before(sizeof(Vtop___024root));
        uint64_t cycle = 0;
        for (bool busy = true; busy && cycle < limit; ++cycle) {
            std::memcpy(before.data(), root(), before.size());
            clock();
            for (std::size_t index = 0; index < found.size(); ++index) {
                const Site& site = SITES[index];
                if (site.depth > 1) continue;
                const uint8_t* now = bytes(site);
                for (std::size_t byte = 0; byte < site.stride; ++byte)
                    found[index] += __builtin_popcount(now[byte] ^ before[site.offset + byte]);
            }
            busy = top_.host__read_data & BUSY || cycle < START_CYCLES;
        }
        found.push_back(cycle);
        return found;
    }

    // Runs what was started to its end, and keeps its state at intervals and each memory's accesses.
    uint64_t record_golden(uint64_t limit) {
        top_.host__addr = STATUS_ADDR;
        strays_ = false;
        snapshots_.clear();
        accesses_.assign(PORT_COUNT, {});
        for (std::size_t port = 0; port < PORT_COUNT; ++port)
            accesses_[port].resize(SITES[PORTS[port].site].depth);
        const std::size_t room = sizeof(Vtop___024root) + size_;
        // As many states as there is room for; half of them are dropped where they are too many.
        interval_ = SHORTEST_INTERVAL;
        uint64_t cycle = 0;
        for (bool busy = true; busy && cycle < limit; ++cycle) {
            if (cycle % interval_ == 0) {
                if ((snapshots_.size() + 1) * room > MOST_BYTES) thin();
                if (cycle % interval_ == 0) snapshots_.push_back(save());
            }
            note_accesses(cycle);
            busy = top_.host__read_data & BUSY || cycle < START_CYCLES;
        }
        golden_ = cycle;
        return cycle;
    }

    // The bit of a word flips after so many cycles of the golden run; with `whole` the run is
    // simulated from its first cycle to its last.
    Outcome inject(uint64_t site, uint64_t word, uint64_t bit, uint64_t cycle, bool whole) {
        const int port = port_of(site);
        if (port >= 0 && !whole) {
            // Until it is read it does nothing, and never where it is written first.
            const uint64_t access = next_access(port, word, cycle);
            if (access == NEVER || access & 1) return {AS_BEFORE, 0, 0, 0};
            cycle = access >> 1;
        }
        strays_ = true;
        const uint64_t nearest = whole ? 0 : cycle / interval_;
        restore(snapshots_[nearest]);
        uint64_t now = nearest * interval_;
        const uint64_t from = now;
        for (; now < cycle; ++now) clock();
        uint8_t* byte = bytes(SITES[site]) + word * SITES[site].stride + bit / 8;
        *byte ^= 1 << bit % 8;
        Vtop___024root___eval_settle(root());
        const uint64_t last = 2 * golden_ + LONGEST_WAIT;
        corrected_ = 0;
        for (bool busy = true; busy && now < last;) {
            clock();
            ++now;
#ifdef CORRECTED
            corrected_ += root()->CORRECTED & 1;
#endif
            busy = top_.host__read_data & BUSY || now < START_CYCLES;
            if (busy && !whole && now % interval_ == 0 && now / interval_ < snapshots_.size() &&
                converged(now))
                return {AS_BEFORE, now - from, 0, corrected_};
        }
        const uint32_t status = top_.host__read_data;
        return {status & BUSY ? GOES_ON : ENDED, now - from, status, corrected_};
    }

   private:
    static constexpr uint64_t NEVER = ~uint64_t{0};
    static constexpr uint64_t SHORTEST_INTERVAL = 16;
    static constexpr std::size_t MOST_BYTES = std::size_t{192} << 20;
    static constexpr uint64_t START_CYCLES = 4;  // until BUSY can be seen
    static constexpr uint32_t BUSY = 1;

    struct Snapshot {
        std::vector<uint8_t> root;
        std::vector<uint8_t> image;
        MemoryState state;
    };

    Vtop___024root* root() { return top_.rootp; }
    uint8_t* bytes(const Site& site) { return reinterpret_cast<uint8_t*>(root()) + site.offset; }

    Snapshot save() {
        const uint8_t* from = reinterpret_cast<uint8_t*>(root());
        return {{from, from + sizeof(Vtop___024root)}, {memory_, memory_ + size_}, *this};
    }

    void restore(const Snapshot& snapshot) {
        std::memcpy(static_cast<void*>(root()), snapshot.root.data(), snapshot.root.size());
        std::memcpy(memory_, snapshot.image.data(), snapshot.image.size());
        static_cast<MemoryState&>(*this) = snapshot.state;
    }

    void thin() {
        for (std::size_t index = 1; 2 * index < snapshots_.size(); ++index)
            snapshots_[index] = std::move(snapshots_[2 * index]);
        snapshots_.resize((snapshots_.size() + 1) / 2);
        interval_ *= 2;
    }

    uint64_t value(std::size_t offset, std::size_t size) {
        uint64_t found = 0;
        std::memcpy(&found, reinterpret_cast<uint8_t*>(root()) + offset, size);
        return found;
    }

    // Clocks, and notes what the edge reads and writes: cycle * 2, plus 1 for a write alone.
    void note_accesses(uint64_t cycle) {
        drive();
        top_.clk = 0;
        top_.eval();
        for (std::size_t index = 0; index < PORT_COUNT; ++index) {
            const Port& port = PORTS[index];
            auto& words = accesses_[index];
            const uint64_t read = value(port.read_addr, port.addr_size);
            const uint64_t written = value(port.write_addr, port.addr_size);
            const bool reads = value(port.read_en, 1) && read < words.size();
            if (reads) words[read].push_back(cycle << 1);
            // A part of a word leaves the rest as it was.
            if (value(port.write_en, port.en_size) == port.all && written < words.size() &&
                !(reads && read == written))
                words[written].push_back(cycle << 1 | 1);
        }
        sample();
        top_.clk = 1;
        top_.eval();
        ++time_;
    }

    int port_of(uint64_t site) const {
        for (std::size_t port = 0; port < PORT_COUNT; ++port)
            if (PORTS[port].site == site) return static_cast<int>(port);
        return -1;
    }

    // The first access at or after the edge that ends a cycle.
    uint64_t next_access(int port, uint64_t word, uint64_t cycle) const {
        const auto& found = accesses_[port][word];
        const auto next = std::lower_bound(found.begin(), found.end(), cycle << 1);
        return next == found.end() ? NEVER : *next;
    }

    // Nothing that is still to be used differs from the golden run.
    bool converged(uint64_t now) {
        const Snapshot& golden = snapshots_[now / interval_];
        for (const uint32_t index : COMPARED) {
            const Site& site = SITES[index];
            if (std::memcmp(bytes(site), &golden.root[site.offset], site.depth * site.stride))
                return false;
        }
        for (std::size_t port = 0; port < PORT_COUNT; ++port) {
            const Site& site = SITES[PORTS[port].site];
            if (PORTS[port].counts) continue;
            const uint8_t* found = bytes(site);
            const uint8_t* wanted = &golden.root[site.offset];
            if (std::memcmp(found, wanted, site.depth * site.stride) == 0) continue;
            for (uint32_t word = 0; word < site.depth; ++word) {
                const std::size_t place = word * site.stride;
                if (std::memcmp(found + place, wanted + place, site.stride) == 0) continue;
                const uint64_t access = next_access(static_cast<int>(port), word, now);
                if (access != NEVER && !(access & 1)) return false;
            }
        }
        return same_memory(golden);
    }

    bool same_memory(const Snapshot& golden) const {
        const auto same = [](const std::deque<Burst>& left, const std::deque<Burst>& right) {
            return std::equal(left.begin(), left.end(), right.begin(), right.end(),
                              [](const Burst& a, const Burst& b) {
                                  return a.addr == b.addr && a.words == b.words &&
                                         a.time == b.time && a.outside == b.outside;
                              });
        };
        return same(reads_, golden.state.reads_) && same(writes_, golden.state.writes_) &&
               written_ == golden.state.written_ && offered_ == golden.state.offered_ &&
               std::max(next_read_, time_) == std::max(golden.state.next_read_, time_) &&
               std::max(next_write_, time_) == std::max(golden.state.next_write_, time_) &&
               failed_ == golden.state.failed_ &&
               std::memcmp(memory_, golden.image.data(), golden.image.size()) == 0;
    }

    uint64_t interval_ = SHORTEST_INTERVAL;
    uint64_t golden_ = 0;
    uint32_t corrected_ = 0;
    std::vector<Snapshot> snapshots_;
    std::vector<std::vector<std::vector<uint64_t>>> accesses_;  // by port and word
};

}  // namespace
