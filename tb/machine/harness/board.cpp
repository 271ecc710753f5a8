// Runs a board's top level behind a pseudo-terminal, whose path is the first line of output.
//
// Bytes that are written to the terminal travel to the pin rx bit by bit, and what the pin tx sends
// can be read from it; with SPI, for each byte that is written the one that came back can be read.
// While nothing comes the clock goes slowly, so that a host which the computer keeps waiting within a
// request has as long as with a board to go on; while nothing is to be done it stands still. The
// program ends when its standard input does.
// Arguments: cycles of a bit, with SPI of half a one, and cycles without a byte after which the link gives a request up,
// a file that the SDRAM or PSRAM holds from the start, or nothing, and a file that lies in the flash. With a flash, each change of
// the LED "error" is told on standard error; with SDRAM, what it moved in each run (traffic.h).

#include <fcntl.h>
#include <poll.h>
#include <termios.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "Vtop.h"
#ifdef SDRAM_BITS
#include "sdram.h"
#include "traffic.h"
#endif
#ifdef DDR3_DATA_WIDTH
#include "ddr3.h"
#endif
#ifdef PSRAM_DIES
#include "psram.h"
#endif
#ifdef FLASH_SIZE
#include "flash.h"
#endif
#include "verilated.h"

namespace {

[[noreturn]] void fail(const char* text) {
    std::fprintf(stderr, "%s: %s\n", text, std::strerror(errno));
    std::exit(1);
}

// The far end of a terminal that passes every byte as it is.
class Terminal {
   public:
    Terminal() {
        far_ = posix_openpt(O_RDWR | O_NOCTTY);
        if (far_ < 0 || grantpt(far_) || unlockpt(far_)) fail("no pseudo-terminal");
        path_ = ptsname(far_);
        // Kept open: a terminal that nobody has open could not be waited for.
        near_ = open(path_, O_RDWR | O_NOCTTY);
        termios settings;
        if (near_ < 0 || tcgetattr(near_, &settings)) fail("no pseudo-terminal");
        cfmakeraw(&settings);
        tcsetattr(near_, TCSANOW, &settings);
        fcntl(far_, F_SETFL, O_NONBLOCK);
    }

    const char* path() const { return path_; }

    // The next byte, or -1 where there is none.
    int get() {
        if (place_ == count_) {
            place_ = count_ = 0;
            const ssize_t found = read(far_, bytes_, sizeof bytes_);
            if (found > 0) count_ = found;
        }
        return place_ < count_ ? bytes_[place_++] : -1;
    }

    // Like a wire, it does not keep what nobody takes for long.
    void put(uint8_t byte) {
        if (write(far_, &byte, 1) < 0 && errno != EAGAIN) fail("write");
    }

    // Waits for a byte, at most so long; false where standard input has ended.
    bool wait(int milliseconds) {
        pollfd files[] = {{far_, POLLIN, 0}, {STDIN_FILENO, POLLIN, 0}};
        if (poll(files, 2, milliseconds) < 0 && errno != EINTR) fail("poll");
        char rest[64];
        return !files[1].revents || read(STDIN_FILENO, rest, sizeof rest) > 0;
    }

   private:
    int far_;
    int near_;
    const char* path_;
    uint8_t bytes_[4096];
    ssize_t place_ = 0;
    ssize_t count_ = 0;
};

constexpr uint64_t LOOK = 1 << 8;    // cycles between two looks for bytes
constexpr uint64_t ALIVE = 1 << 18;  // cycles between two looks at standard input
constexpr uint64_t PAUSES = 16;      // within the silence after which a request is given up
constexpr int PAUSE = 10;            // milliseconds

// The byte that is on its way, in either direction; each Line takes bytes from the terminal to the
// pins before a cycle's edge, brings them back after it, and tells whether anything goes on.
#ifndef SPI

class Line {
   public:
    explicit Line(uint64_t divisor) : divisor_(divisor) {}

    void start(Vtop& top) { top.rx = 1; }

    bool before(Vtop& top, Terminal& terminal, uint64_t time) {
        if (left_ == 0 && time % LOOK == 0) take(terminal, time);
        if (left_ == 0) return false;
        top.rx = bits_ & 1;
        if (time - begin_ == divisor_ - 1) {
            bits_ >>= 1;
            begin_ = time + 1;
            if (--left_ == 0) take(terminal, time + 1);
        }
        return true;
    }

    bool after(Vtop& top, Terminal& terminal, uint64_t time) {
        if (!receiving_) {
            if (!top.tx) {
                receiving_ = true;
                received_ = count_ = 0;
                middle_ = time + divisor_ / 2;
            }
        } else if (time == middle_) {
            received_ |= static_cast<uint32_t>(top.tx) << count_;
            middle_ = time + divisor_;
            if (++count_ == 10) {
                terminal.put(received_ >> 1);
                receiving_ = false;
            }
        }
        return receiving_;
    }

   private:
    void take(Terminal& terminal, uint64_t time) {
        const int byte = terminal.get();
        if (byte < 0) return;
        bits_ = static_cast<uint32_t>(byte) << 1 | 1u << 9;
        left_ = 10;
        begin_ = time;
    }

    const uint64_t divisor_;
    uint64_t begin_ = 0, middle_ = 0;
    uint32_t bits_ = 0, left_ = 0;  // from the start bit on
    uint32_t received_ = 0, count_ = 0;
    bool receiving_ = false;
};

#else

// The peripheral is selected while bytes follow one another.
class Line {
   public:
    explicit Line(uint64_t divisor) : half_(divisor) {}

    void start(Vtop& top) { top.cs_n = 1; }

    bool before(Vtop& top, Terminal& terminal, uint64_t time) {
        if (left_ == 0 && time % LOOK == 0) {
            if (take(terminal)) begin_ = time;
        }
        if (left_ == 0) {
            top.cs_n = 1;
            return false;
        }
        top.cs_n = 0;
        top.copi = sent_ >> 7 & 1;
        if (time - begin_ == half_) {
            top.sck = 1;
            received_ = received_ << 1 | top.cipo;
        } else if (time - begin_ == 2 * half_) {
            top.sck = 0;
            sent_ <<= 1;
            begin_ = time;
            if (--left_ == 0) {
                terminal.put(received_);
                take(terminal);
            }
            top.copi = sent_ >> 7 & 1;
        }
        return true;
    }

    bool after(Vtop&, Terminal&, uint64_t) { return false; }

   private:
    bool take(Terminal& terminal) {
        const int byte = terminal.get();
        if (byte < 0) return false;
        sent_ = static_cast<uint32_t>(byte);
        left_ = 8;
        return true;
    }

    const uint64_t half_;
    uint64_t begin_ = 0;
    uint32_t sent_ = 0, received_ = 0, left_ = 0;
};

#endif

}  // namespace

int main(int argc, char** argv) {
    if (argc != 5) return 2;
    Line line(std::strtoull(argv[1], nullptr, 10));
    const uint64_t timeout = std::strtoull(argv[2], nullptr, 10);
    const uint64_t pause = timeout / PAUSES + 1;
    Terminal terminal;
    std::printf("%s\n", terminal.path());
    std::fflush(stdout);

    Vtop top;
    uint64_t time = 0, active = 0;
    line.start(top);
    top.rst = 1;
#ifdef SDRAM_BITS
    Sdram sdram;
    Traffic traffic;
    if (*argv[3]) sdram.fill(argv[3]);
#endif
#ifdef DDR3_DATA_WIDTH
    if (*argv[3]) fill_ddr3(top, argv[3]);
#endif
#ifdef PSRAM_DIES
    Psram psram;
    if (*argv[3]) psram.fill(argv[3]);
#endif
#ifdef FLASH_SIZE
    Flash flash(argv[4]);
    bool shown = false;
#endif
    while (true) {
        if (line.before(top, terminal, time)) active = time;
        top.clk = 0;
        top.eval();
#ifdef SDRAM_BITS
        sdram.step(top);
        traffic.step(top);
#endif
#ifdef PSRAM_DIES
        psram.step(top);
#endif
#ifdef FLASH_SIZE
        flash.step(top);
        if (!top.flash_cs_n) active = time;
        if (shown != top.error) {
            shown = top.error;
            std::fprintf(stderr, "LED error: %d in cycle %llu\n", shown, static_cast<unsigned long long>(time));
        }
#endif
        top.clk = 1;
        top.eval();
#ifdef PSRAM_DIES
        psram.step(top);
#endif
        ++time;
        if (time == 4) top.rst = 0;
        if (line.after(top, terminal, time) || top.busy) active = time;
        if (time % ALIVE == 0 && !terminal.wait(0)) return 0;
        const uint64_t silent = time - active;
        if (silent && silent % pause == 0 && !terminal.wait(PAUSE)) return 0;
        if (silent > 2 * timeout + 1000) {
            time -= time % LOOK;  // so that bytes are looked for at once
            if (!terminal.wait(1000)) return 0;
            active = time - timeout;
        }
    }
}
