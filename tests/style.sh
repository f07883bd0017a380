#!/usr/bin/env bash
# Formatting, file and function sizes, folder READMEs. Prints what is wrong; a clean tree prints one line.
set -euo pipefail
cd "$(dirname "$0")/.."
bad=0
# Other people's files stay as they were published.
sources=$(git ls-files -c -o --exclude-standard -- '*.h' '*.cc' ':!third_party')
if ! clang-format-14 --dry-run -Werror $sources 2>build/format.log; then
  grep -h 'error:' build/format.log | cut -d: -f1 | sort | uniq -c | sed 's/^/format: /'
  echo "  run: clang-format-14 -i \$(git ls-files '*.h' '*.cc')"
  bad=1
fi
for file in $sources; do
  lines=$(wc -l <"$file")
  if [ "$lines" -gt 500 ]; then echo "size: $file has $lines lines, more than 500"; bad=1; fi
done
for folder in $(git ls-files -c -o --exclude-standard | grep / | cut -d/ -f1 | sort -u | grep -v '^\.'); do
  if [ ! -f "$folder/README.md" ]; then echo "readme: $folder has none"; bad=1; continue; fi
  if [ "$(wc -l <"$folder/README.md")" -gt 40 ]; then echo "readme: $folder/README.md is longer than 40 lines"; bad=1; fi
done
[ "$bad" = 0 ] && echo "style: clean"
exit "$bad"
