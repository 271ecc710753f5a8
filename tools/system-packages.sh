#!/bin/sh
# Installs the system packages that simulation needs, or names them in one line that can be pasted.
set -eu

missing=
for pair in g++:g++ make:make perl:perl iverilog:iverilog python3:python3-venv \
    riscv64-unknown-elf-gcc:gcc-riscv64-unknown-elf; do
    command -v "${pair%%:*}" >/dev/null 2>&1 || missing="$missing ${pair#*:}"
done
# Verilator compresses waveforms in the form FST with it.
[ -e /usr/include/lz4.h ] || missing="$missing liblz4-dev"
[ -e /usr/include/zlib.h ] || missing="$missing zlib1g-dev"
[ -n "$missing" ] || exit 0

if [ "$(id -u)" = 0 ]; then
    run=
elif command -v sudo >/dev/null 2>&1 && sudo -n true 2>/dev/null; then
    run=sudo
else
    run=refused
fi
if [ "$run" != refused ] && command -v apt-get >/dev/null 2>&1; then
    $run apt-get update -qq
    # shellcheck disable=SC2086 # a list of words
    $run apt-get install -y -qq --no-install-recommends $missing
else
    echo "Some system packages are missing. Simulation with them needs:" >&2
    echo "    sudo apt-get install -y$missing" >&2
fi
