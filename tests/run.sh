#!/usr/bin/env bash
# Installs what the tests need, builds, runs every suite. One closing line per runner.
#   bash tests/run.sh            everything
#   bash tests/run.sh fast       the C++ suites and style alone
#   bash tests/run.sh asan       the C++ suites, then again under address and undefined-behaviour sanitizers
set -euo pipefail
cd "$(dirname "$0")/.."
mode=${1:-all}
export CCACHE_DIR=${CCACHE_DIR:-$HOME/.cache/ccache} CCACHE_BASEDIR=$PWD CCACHE_NOHASHDIR=1
export TWINFORGE_SHARED=${TWINFORGE_SHARED:-$(cd .. && pwd)/shared}
jobs=$(nproc)
began=$(date +%s)
say() { printf '\n== %s (%d s)\n' "$*" $(($(date +%s) - began)); }

say "packages"
bash samples/install.sh samples/packages.txt tests/packages.txt
venv=$PWD/build/venv
mkdir -p build
[ "$mode" != all ] || bash tests/install_oracle.sh "$venv"

say "build"
cmake -G Ninja -S . -B build/release -DCMAKE_BUILD_TYPE=Release -DTWINFORGE_BENCH=ON >build/configure.log || { cat build/configure.log; exit 1; }
ninja -C build/release -j "$jobs" --quiet

say "C++ suites"
ctest --test-dir build/release -j "$jobs" --output-on-failure

say "style"
bash tests/style.sh

if [ "$mode" = all ]; then
  say "command line and outside judge"
  TWINFORGE=$PWD/build/release/cli/twinforge "$venv/bin/python" -m pytest -q --no-header -p no:cacheprovider tests

  say "quickstart"
  bash samples/quickstart.sh >build/quickstart.log 2>&1 || { cat build/quickstart.log; exit 1; }
  tail -n 4 build/quickstart.log
fi

if [ "$mode" = asan ]; then
  say "sanitizers"
  cmake -G Ninja -S . -B build/asan -DCMAKE_BUILD_TYPE=Release -DTWINFORGE_SANITIZE=ON >build/configure-asan.log
  ninja -C build/asan -j "$jobs" --quiet
  ctest --test-dir build/asan -j "$jobs" -LE slow --output-on-failure
fi
say "done"
