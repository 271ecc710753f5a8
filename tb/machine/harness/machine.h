// The accelerator, compiled by Verilator, with external memory around it.
//
// `interface.h` is generated: bit positions of the packed ports, and their names in C++.

#pragma once

#include <cinttypes>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <vector>

#include "Vtop.h"
#include "interface.h"
#include "verilated.h"

namespace {

constexpr int MEM_BYTES = MEM_WIDTH / 8;

// Bits of a port from a position on, at most 64, whatever type Verilator gave to the port.
template <typename T>
uint64_t bits(const T& port, int lsb, int width) {
    const uint64_t value = static_cast<uint64_t>(port) >> lsb;
    return width == 64 ? value : value & ((uint64_t{1} << width) - 1);
}

template <std::size_t words>
uint64_t bits(const VlWide<words>& port, int lsb, int width) {
    uint64_t value = 0;
    for (int done = 0; done < width;) {
        const int offset = (lsb + done) % 32;
        const int count = width - done < 32 - offset ? width - done : 32 - offset;
        const uint64_t part = port[(lsb + done) / 32] >> offset;
        value |= (part & ((uint64_t{1} << count) - 1)) << done;
        done += count;
    }
    return value;
}

template <typename T>
void set_byte(T& port, int index, uint8_t byte) {
    if (index == 0) port = 0;
    port |= static_cast<T>(static_cast<uint64_t>(byte) << (8 * index));
}

template <std::size_t words>
void set_byte(VlWide<words>& port, int index, uint8_t byte) {
    if (index % 4 == 0) port[index / 4] = 0;
    port[index / 4] |= static_cast<EData>(byte) << (8 * (index % 4));
}

uint64_t splitmix64(uint64_t z) {
    z += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

[[noreturn]] void fail(const char* text, uint64_t value) {
    std::printf("error: %s %#" PRIx64 "\n", text, value);
    std::fflush(stdout);
    std::exit(1);
}

struct Burst {
    uint64_t addr;
    uint64_t words;
    uint64_t time;  // cycle from which its first word is there
    bool outside;   // of external memory, or not aligned
};

struct Event {
    uint64_t cycle;
    uint64_t code;
};

// Notes when commands begin and end, and sums over windows of cycles where they change.
class Recorder {
   public:
    enum Kind { WORD, OFFERED, DONE, LACKING, SUM };

    void set_window(uint64_t window) { window_ = window; }
    std::vector<Event>& events() { return events_; }
    bool running() const { return running_; }

    void begin(uint64_t time) {
        running_ = window_ != 0;
        origin_ = time;
        first_ = cycles_ = 0;
        for (int engine = 0; engine < ENGINES; ++engine) open_[engine] = lacking_[engine] = 0;
        for (int place = 0; place < SUMS; ++place) sums_[place] = noted_[place] = 0;
    }

    void end() {
        if (running_ && cycles_ != 0) close();
        running_ = false;
    }

    void word(uint64_t time, uint64_t value) { note(time - origin_, WORD, 0, value); }

    void cycle(uint64_t time, uint64_t engines, uint64_t causes, bool read, bool written) {
        const uint64_t now = time - origin_;
        for (int engine = 0; engine < ENGINES; ++engine) {
            const uint64_t event = engines >> engine * EVENT_WIDTH;
            const uint64_t lacking = bits(event, EVENT_LACKING_LSB, EVENT_LACKING_WIDTH);
            const bool offered = bits(event, EVENT_OFFERED_LSB, 1);
            if (bits(event, EVENT_DONE_LSB, 1)) note(now, DONE, engine, 0);
            if (offered && !open_[engine]) note(now, OFFERED, engine, 0);
            if (lacking != lacking_[engine]) note(now, LACKING, engine, lacking);
            open_[engine] = offered && !bits(event, EVENT_TAKEN_LSB, 1);
            lacking_[engine] = lacking;
        }
        // The causes are those of the cycle before.
        for (int cause = 0; cause < CAUSES; ++cause) sums_[cause] += causes >> cause & 1;
        if (cycles_ == window_) close();
        sums_[CAUSES] += read;
        sums_[CAUSES + 1] += written;
        ++cycles_;
    }

   private:
    static constexpr int SUMS = CAUSES + 2;

    void note(uint64_t cycle, Kind kind, uint64_t place, uint64_t value) {
        events_.push_back({cycle, static_cast<uint64_t>(kind) << 44 | place << 40 | value});
    }

    void close() {
        for (int place = 0; place < SUMS; ++place) {
            if (sums_[place] != noted_[place]) note(first_, SUM, place, sums_[place]);
            noted_[place] = sums_[place];
            sums_[place] = 0;
        }
        first_ += cycles_;
        cycles_ = 0;
    }

    uint64_t window_ = 0;
    bool running_ = false;
    uint64_t origin_ = 0;
    uint64_t first_ = 0;
    uint64_t cycles_ = 0;
    bool open_[ENGINES];
    uint64_t lacking_[ENGINES];
    uint64_t sums_[SUMS];
    uint64_t noted_[SUMS];
    std::vector<Event> events_;
};

// What external memory remembers beside its bytes.
struct MemoryState {
    uint64_t time_ = 0;
    uint64_t next_read_ = 0;
    bool offered_ = false;
    bool failed_ = false;
    uint64_t next_write_ = 0;
    std::deque<Burst> reads_;
    std::deque<Burst> writes_;
    std::deque<uint64_t> written_;
};

class Machine : protected MemoryState {
   public:
    Machine(uint64_t size, uint64_t latency, uint64_t interval, uint64_t period, uint64_t refresh)
        : size_(size), latency_(latency), interval_(interval), period_(period), refresh_(refresh) {
        // Untouched pages of a large external memory take no memory here.
        memory_ = static_cast<uint8_t*>(std::calloc(size, 1));
        if (memory_ == nullptr) fail("no room for external memory of bytes", size);
        reset(4, true);
    }

    // External memory goes on unless it is cold, when it forgets what it was asked for.
    void reset(uint64_t cycles, bool cold) {
        top_.rst = cycles != 0;
        top_.mem_reset = cold;
        for (uint64_t cycle = 0; cycle < cycles; ++cycle) clock();
        if (cold) {
            reads_.clear();
            writes_.clear();
            written_.clear();
            offered_ = false;
        }
        top_.rst = 0;
        top_.mem_reset = 0;
        if (cycles != 0) forget_signatures();
    }

    void clocks(uint64_t cycles) {
        for (uint64_t cycle = 0; cycle < cycles; ++cycle) clock();
    }

    enum Mode { ANSWERS, SILENT, FAILS };
    void set_mode(uint64_t mode) { mode_ = mode; }
    bool irq() { top_.eval(); return top_.irq; }
    void forget_signatures() {
        signature_ = 0;
        signatures_.clear();
    }

    uint8_t* memory(uint64_t addr, uint64_t count) {
        if (addr > size_ || count > size_ - addr) fail("outside external memory: address", addr);
        return memory_ + addr;
    }

    void write_host(uint64_t addr, uint64_t data) {
        top_.host__addr = addr;
        top_.host__write_data = data;
        top_.host__write_en = 1;
        clock();
        top_.host__write_en = 0;
    }

    uint64_t read_host(uint64_t addr) {
        top_.host__addr = addr;
        clock();
        top_.eval();
        return top_.host__read_data;
    }

    bool run(uint64_t addr, uint64_t mask, uint64_t value, uint64_t limit) {
        top_.host__addr = addr;
        recorder_.begin(time_);
        clock();
        bool done = false;
        for (uint64_t cycle = 0; cycle < limit && !done; ++cycle) {
            clock();
            done = (top_.host__read_data & mask) == value;
        }
        recorder_.end();
        return done;
    }

    uint64_t time() const { return time_; }
    std::vector<uint64_t>& signatures() { return signatures_; }
    Recorder& recorder() { return recorder_; }

   protected:
    // One cycle: inputs from this side's state, outputs settled at the low clock, then the edge.
    void clock() {
        drive();
        top_.clk = 0;
        top_.eval();
        sample();
        top_.clk = 1;
        top_.eval();
        ++time_;
    }

    void drive() {
        const bool open =
            mode_ != SILENT && (period_ == 0 || time_ % period_ < period_ - refresh_);
        top_.mem_read__request__ready = mode_ != SILENT && reads_.size() < QUEUE;
        const bool valid = offered_ || (open && !reads_.empty() &&
                                        reads_.front().time <= time_ && next_read_ <= time_);
        top_.mem_read__data__valid = valid;
        if (valid && !reads_.front().outside) {
            const uint8_t* bytes = memory(reads_.front().addr, MEM_BYTES);
            for (int index = 0; index < MEM_BYTES; ++index)
                set_byte(top_.mem_read__data__payload, index, bytes[index]);
        }
        top_.mem_write__request__ready = mode_ != SILENT && writes_.size() < QUEUE;
        top_.mem_write__data__ready = open && !writes_.empty() && next_write_ <= time_;
        top_.mem_write__written =
            mode_ != SILENT && !written_.empty() && written_.front() <= time_;
        top_.mem_error = failed_;
        failed_ = false;
    }

    void sample() {
        // What is asked for before a reset has taken hold may be anything.
        if (top_.mem_reset) return;
        if (top_.mem_write__written) written_.pop_front();
        // What was offered stays until it is taken.
        offered_ = top_.mem_read__data__valid && !top_.mem_read__data__ready;
        if (top_.mem_read__data__valid && top_.mem_read__data__ready) {
            Burst& burst = reads_.front();
            failed_ = mode_ == FAILS || burst.outside;
            burst.addr += MEM_BYTES;
            next_read_ = time_ + interval_;
            if (--burst.words == 0) reads_.pop_front();
        }
        if (top_.mem_write__data__valid && top_.mem_write__data__ready) {
            Burst& burst = writes_.front();
            failed_ |= mode_ == FAILS || burst.outside;
            uint8_t* bytes = burst.outside ? memory_ : memory(burst.addr, MEM_BYTES);
            for (int index = 0; index < MEM_BYTES && !burst.outside; ++index)
                if (bits(top_.mem_write__data__payload, WRITE_MASK_LSB + index, 1))
                    bytes[index] = bits(top_.mem_write__data__payload,
                                        WRITE_DATA_LSB + 8 * index, 8);
            burst.addr += MEM_BYTES;
            next_write_ = time_ + interval_;
            if (--burst.words == 0) {
                writes_.pop_front();
                written_.push_back(time_ + latency_);
            }
        }
        if (top_.mem_read__request__valid && top_.mem_read__request__ready)
            reads_.push_back(burst(top_.mem_read__request__payload));
        if (top_.mem_write__request__valid && top_.mem_write__request__ready)
            writes_.push_back(burst(top_.mem_write__request__payload));
#if HAS_TRACE
        if (top_.trace__o_valid) trace(top_.trace__o_write);
        if (top_.trace__s_valid) trace(top_.trace__s_write);
        if (top_.trace__retire) {
            signatures_.push_back(signature_);
            signature_ = 0;
        }
        if (recorder_.running()) {
            if (top_.events__word_valid) recorder_.word(time_, top_.events__word);
            recorder_.cycle(time_, top_.events__engines, top_.events__array,
                            top_.mem_read__data__valid && top_.mem_read__data__ready,
                            top_.mem_write__data__valid && top_.mem_write__data__ready);
        }
#endif
    }

    template <typename T>
    Burst burst(const T& payload) {
        const uint64_t addr = bits(payload, BURST_ADDR_LSB, BURST_ADDR_WIDTH);
        const uint64_t words = bits(payload, BURST_LAST_LSB, BURST_LAST_WIDTH) + 1;
        const bool outside = addr % MEM_BYTES || addr + words * MEM_BYTES > size_;
        if (outside && !strays_) {
            if (addr % MEM_BYTES) fail("unaligned burst at", addr);
            memory(addr, words * MEM_BYTES);
        }
        return {addr, words, time_ + latency_, outside};
    }

    template <typename T>
    void trace(const T& write) {
        const uint64_t addr = bits(write, TRACE_ADDR_LSB, TRACE_ADDR_WIDTH);
        const uint64_t count = bits(write, TRACE_COUNT_LSB, TRACE_COUNT_WIDTH);
        for (uint64_t index = 0; index < count; ++index) {
            const uint64_t byte = bits(write, TRACE_DATA_LSB + 8 * index, 8);
            signature_ += splitmix64((addr + index) << 8 | byte);
        }
    }

    static constexpr std::size_t QUEUE = 8;

    Vtop top_;
    uint8_t* memory_;
    uint64_t size_;
    uint64_t latency_;
    uint64_t interval_;
    uint64_t period_;
    uint64_t refresh_;
    uint64_t mode_ = ANSWERS;
    bool strays_ = false;  // bursts outside external memory are told by mem_error
    uint64_t signature_ = 0;
    std::vector<uint64_t> signatures_;
    Recorder recorder_;
};

}  // namespace
