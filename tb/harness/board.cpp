// Runs a board's top level behind a pseudo-terminal, whose path is the first line of output.
//
// Bytes that are written to the terminal travel to the pin rx bit by bit, and what the pin tx sends
// can be read from it. While nothing is to be done the clock stands still. The program ends when
// its standard input does.
// Arguments: cycles of a bit, and cycles without a byte after which the link gives a request up.

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

}  // namespace

int main(int argc, char** argv) {
    if (argc != 3) return 2;
    const uint64_t divisor = std::strtoull(argv[1], nullptr, 10);
    const uint64_t timeout = std::strtoull(argv[2], nullptr, 10);
    Terminal terminal;
    std::printf("%s\n", terminal.path());
    std::fflush(stdout);

    Vtop top;
    uint64_t time = 0, active = 0;
    uint64_t sent_bits = 0, sent_time = 0;  // the byte on its way to rx, from its start bit on
    uint32_t sent = 0;
    bool receiving = false;
    uint64_t received_time = 0;
    uint32_t received = 0, received_bits = 0;
    top.rx = 1;
    top.rst = 1;
    while (true) {
        if (sent_bits == 0 && time % LOOK == 0) {
            const int byte = terminal.get();
            if (byte >= 0) {
                sent = static_cast<uint32_t>(byte) << 1 | 1u << 9;
                sent_bits = 10;
                sent_time = time;
            }
        }
        if (sent_bits != 0) {
            top.rx = sent & 1;
            active = time;
            if (time - sent_time == divisor - 1) {
                sent >>= 1;
                sent_time = time + 1;
                if (--sent_bits == 0) {
                    const int byte = terminal.get();
                    if (byte >= 0) {
                        sent = static_cast<uint32_t>(byte) << 1 | 1u << 9;
                        sent_bits = 10;
                    }
                }
            }
        }
        top.clk = 0;
        top.eval();
        top.clk = 1;
        top.eval();
        ++time;
        if (time == 4) top.rst = 0;
        if (top.busy) active = time;
        if (!receiving) {
            if (!top.tx) {
                receiving = true;
                received = received_bits = 0;
                received_time = time + divisor / 2;
            }
        } else if (time == received_time) {
            received |= static_cast<uint32_t>(top.tx) << received_bits;
            received_time = time + divisor;
            if (++received_bits == 10) {
                terminal.put(received >> 1);
                receiving = false;
            }
        }
        if (receiving) active = time;
        if (time % ALIVE == 0 && !terminal.wait(0)) return 0;
        if (time - active > 2 * timeout + 1000) {
            time -= time % LOOK;  // so that bytes are looked for at once
            if (!terminal.wait(1000)) return 0;
            active = time - timeout;
        }
    }
}
