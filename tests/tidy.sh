#!/usr/bin/env bash
# clang-tidy (.clang-tidy says which checks) over the product's sources. Prints what is wrong; a clean tree prints one line.
#   bash tests/tidy.sh BUILD            sources that differ from where this branch left main, at most 20; on main, the last commit's
#   bash tests/tidy.sh BUILD all        every one: half an hour of one core
# BUILD is a build folder that was built: its compile_commands.json says how, its generated headers are included.
set -euo pipefail
cd "$(dirname "$0")/.."
build=$1 most=20
folders='^(base|weights|onnx|ir|eval|transforms|importers|exporters|cost|check|compiler|recipes|proof|report|cli)/.*\.cc$'
# Speaks of vectors as gcc alone understands.
gcc_only='^weights/strided\.cc$'
if [ "${2:-changed}" = all ]; then
  files=$(git ls-files -c -o --exclude-standard | grep -E "$folders" | grep -vE "$gcc_only")
else
  head=$(git rev-parse HEAD)
  base=$(git merge-base HEAD main 2>/dev/null || git merge-base HEAD origin/main 2>/dev/null || echo "$head")
  [ "$base" != "$head" ] || base=$(git rev-parse -q --verify HEAD~1 || echo "$head")
  # A header is read with the source of its name.
  changed=$({ git diff --name-only "$base"; git ls-files -o --exclude-standard; } | sed 's/\.h$/.cc/' | sort -u | grep -E "$folders" | grep -vE "$gcc_only" || true)
  changed=$(for file in $changed; do [ ! -f "$file" ] || echo "$file"; done)
  files=$(head -n "$most" <<<"$changed")
  [ "$files" = "$changed" ] || echo "tidy: $(wc -l <<<"$changed") sources changed, the first $most are read; \`bash tests/run.sh tidy\` reads all"
fi
[ -n "$files" ] || { echo "tidy: nothing changed"; exit 0; }
log=$(mktemp)
trap 'rm -f "$log"' EXIT
if ! xargs -P "$(nproc)" -n 1 clang-tidy-14 -p "$build" --quiet <<<"$files" >"$log" 2>"$log.stderr"; then
  # A header's fault is found once for each source that includes it.
  grep -E 'error:|warning:' "$log" | sed "s|^$PWD/||" | sort -u || cat "$log.stderr"
  rm -f "$log.stderr"
  exit 1
fi
rm -f "$log.stderr"
echo "tidy: clean, $(wc -l <<<"$files") sources"
