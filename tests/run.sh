#!/usr/bin/env bash
# Installs what the tests need, builds, runs every suite. One closing line per runner.
#   bash tests/run.sh            everything; sanitizers over the suites that read hostile bytes
#   bash tests/run.sh fast       the C++ suites, style, and clang-tidy over what changed
#   bash tests/run.sh asan       the C++ suites, then all of them again under sanitizers
#   bash tests/run.sh tidy       clang-tidy over every source; the other modes read those that changed
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

if [ "$mode" = tidy ]; then
  say "clang-tidy"
  bash tests/tidy.sh build/release all
  say "done"
  exit 0
fi

say "C++ suites"
ctest --test-dir build/release -j "$jobs" --output-on-failure

say "style"
bash tests/style.sh

say "clang-tidy over what changed"
bash tests/tidy.sh build/release

if [ "$mode" = all ]; then
  say "command line and outside judge"
  TWINFORGE=$PWD/build/release/cli/twinforge "$venv/bin/python" -m pytest -q --no-header -p no:cacheprovider tests

  say "quickstart"
  bash samples/quickstart.sh >build/quickstart.log 2>&1 || { cat build/quickstart.log; exit 1; }
  tail -n 4 build/quickstart.log
fi

# Address and undefined-behaviour sanitizers: over all suites when asked to, else over those that read hostile bytes.
if [ "$mode" != fast ]; then
  say "sanitizers"
  hostile='^(base|check|compiler|weights|ir|importers)_|_fuzz_'
  cmake -G Ninja -S . -B build/asan -DCMAKE_BUILD_TYPE=Release -DTWINFORGE_SANITIZE=ON >build/configure-asan.log
  suites=$(ctest --test-dir build/asan -N | sed -n 's/^ *Test *#[0-9]*: //p')
  [ "$mode" = asan ] && hostile=. || suites=$(grep -E "$hostile" <<<"$suites")
  ninja -C build/asan -j "$jobs" --quiet $suites
  ctest --test-dir build/asan -j "$jobs" -R "$hostile" -LE slow --output-on-failure
fi
say "done"
