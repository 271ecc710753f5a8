// Drives the accelerator and its external memory; commands come in and answers go out as text.
//
// A command is one letter and hexadecimal numbers; memory travels in words of 16 digits, each the
// value of 8 bytes, least significant byte first:
//   w ADDR COUNT WORD...          write COUNT bytes of external memory
//   r ADDR COUNT                  answer with COUNT bytes of external memory
//   h ADDR DATA                   write a host register (1 cycle)
//   g ADDR                        answer with a host register (2 cycles)
//   s ADDR MASK VALUE LIMIT       clock until the register under the mask has the value, or LIMIT
//                                 cycles; answer with the cycles and 1 or, at the limit, 0
//   t                             answer with the number of signatures and each of them; forget them
//   v WINDOW                      note the events of the runs that follow, and sums over so many
//                                 cycles; 0 ends it
//   n COUNT                       clock for so many cycles
//   x COUNT COLD                  reset for so many cycles, if any; with COLD 1 memory forgets what
//                                 it was asked for
//   k MODE                        memory behaves from now on: 0 as it should, 1 it does nothing, 2
//                                 it fails at every word
//   i                             answer with the interrupt line
//   e                             answer with the number of events and each of them, as cycle and
//                                 code (kind, place, value of 4, 4 and 40 bits); forget them
// Kinds of events: 0 a word for a queue; 1 engine PLACE is offered a command; 2 one is done; 3 the
// engines whose tokens it lacks; 4 sum PLACE of the window that begins: cycles of each of the
// array's causes, words read, words written. Cycles count from the `s` of the run.
//   c                             write the file of coverage; answer with 0
// With faults (faults.h):
//   G LIMIT                       as a run that was just started is to be, to its end or LIMIT
//                                 cycles: answer with its cycles
//   F SITE WORD BIT CYCLE WHOLE   run it again with a bit flipped after so many cycles, with WHOLE 1
//                                 all of it: answer with 0 where it goes on as before, 1 where it
//                                 ends, 2 where it does not, cycles that were simulated, STATUS,
//                                 corrected words
// Every answer is one line. `interface.h` is generated: bit positions of the packed ports,
// and their names in C++.
// Arguments: those of Verilator, with a plus, and bytes of external memory, its latency in cycles,
// cycles per word, the refresh's period
// and its duration in cycles. No word is offered or taken in the last cycles of every period (0:
// no refresh).

#include <cinttypes>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "machine.h"
#if VM_COVERAGE
#include "verilated_cov.h"
#endif
#if HAS_FAULTS
#include "faults.h"
#endif

namespace {

uint64_t number() {
    uint64_t value = 0;
    if (std::scanf("%" SCNx64, &value) != 1) fail("malformed command", 0);
    return value;
}

void write_memory(Machine& machine) {
    const uint64_t addr = number(), count = number();
    uint8_t* bytes = machine.memory(addr, count);
    for (uint64_t index = 0; index < count; index += 8) {
        const uint64_t word = number();
        for (uint64_t byte = 0; byte < 8 && index + byte < count; ++byte)
            bytes[index + byte] = word >> (8 * byte);
    }
}

void read_memory(Machine& machine) {
    const uint64_t addr = number(), count = number();
    const uint8_t* bytes = machine.memory(addr, count);
    for (uint64_t index = 0; index < count; index += 8) {
        uint64_t word = 0;
        for (uint64_t byte = 0; byte < 8 && index + byte < count; ++byte)
            word |= static_cast<uint64_t>(bytes[index + byte]) << (8 * byte);
        std::printf("%016" PRIx64 " ", word);
    }
    std::printf("\n");
}

void run(Machine& machine) {
    const uint64_t addr = number(), mask = number(), value = number(), limit = number();
    const uint64_t before = machine.time();
    const bool done = machine.run(addr, mask, value, limit);
    std::printf("%" PRIu64 " %d\n", machine.time() - before, done);
}

void give_signatures(Machine& machine) {
    std::vector<uint64_t>& signatures = machine.signatures();
    std::printf("%zx", signatures.size());
    for (const uint64_t signature : signatures) std::printf(" %016" PRIx64, signature);
    std::printf("\n");
    machine.forget_signatures();
}

void give_events(Machine& machine) {
    std::vector<Event>& events = machine.recorder().events();
    std::printf("%zx", events.size());
    for (const Event& event : events) std::printf(" %" PRIx64 " %" PRIx64, event.cycle, event.code);
    std::printf("\n");
    events.clear();
}

}  // namespace

int main(int argc, char** argv) {
    Verilated::commandArgs(argc, argv);
    uint64_t given[5];
    int count = 0;
    for (int index = 1; index < argc; ++index) {
        if (argv[index][0] == '+') continue;
        if (count < 5) given[count] = std::strtoull(argv[index], nullptr, 10);
        ++count;
    }
    if (count != 5) fail("arguments wanted: 5, given", count);
#if HAS_FAULTS
    FaultMachine machine(given[0], given[1], given[2], given[3], given[4]);
#else
    Machine machine(given[0], given[1], given[2], given[3], given[4]);
#endif
    char command = 0;
    while (std::scanf(" %c", &command) == 1) {
        switch (command) {
            case 'w':
                write_memory(machine);
                break;
            case 'r':
                read_memory(machine);
                break;
            case 'h': {
                const uint64_t addr = number(), data = number();
                machine.write_host(addr, data);
                break;
            }
            case 'g':
                std::printf("%" PRIx64 "\n", machine.read_host(number()));
                break;
            case 's':
                run(machine);
                break;
            case 't':
                give_signatures(machine);
                break;
            case 'v':
                machine.recorder().set_window(number());
                break;
            case 'n':
                machine.clocks(number());
                break;
            case 'x': {
                const uint64_t cycles = number(), cold = number();
                machine.reset(cycles, cold);
                break;
            }
            case 'k':
                machine.set_mode(number());
                break;
            case 'i':
                std::printf("%d\n", machine.irq());
                break;
            case 'e':
                give_events(machine);
                break;
#if VM_COVERAGE
            case 'c':
                VerilatedCov::write();
                std::printf("0\n");
                break;
#endif
#if HAS_FAULTS
            case 'G':
                std::printf("%" PRIu64 "\n", machine.record_golden(number()));
                break;
            case 'T':
                for (const uint64_t count : machine.count_toggles(number()))
                    std::printf("%" PRIu64 " ", count);
                std::printf("\n");
                break;
            case 'F': {
                const uint64_t site = number(), word = number(), bit = number(), cycle = number();
                const Outcome outcome = machine.inject(site, word, bit, cycle, number() != 0);
                std::printf("%d %" PRIu64 " %x %x\n", outcome.end, outcome.cycles, outcome.status,
                            outcome.corrected);
                break;
            }
#endif
            default:
                fail("unknown command", static_cast<unsigned char>(command));
        }
        std::fflush(stdout);
    }
    return 0;
}
