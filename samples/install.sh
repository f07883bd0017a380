#!/usr/bin/env bash
# Installs the Debian 12 packages named in the given lists, where any is missing.
#   bash samples/install.sh samples/packages.txt [tests/packages.txt]
set -euo pipefail
missing=()
for package in $(cat "$@"); do
  dpkg-query -W -f '${Status}' "$package" 2>/dev/null | grep -q 'install ok installed' || missing+=("$package")
done
if [ ${#missing[@]} -gt 0 ]; then
  echo "installing: ${missing[*]}"
  sudo=""
  [ "$(id -u)" = 0 ] || sudo=sudo
  $sudo apt-get update -qq
  DEBIAN_FRONTEND=noninteractive $sudo apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
fi
