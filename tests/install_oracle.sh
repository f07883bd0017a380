#!/usr/bin/env bash
# The outside judge for the tests: a virtual environment VENV with transformers and a CPU-only torch at pinned versions.
#   bash tests/install_oracle.sh VENV
# The judge's own scripts lie beside the checkout (../shared/oracles). cuda_stubs.py among them spares 2 GB of CUDA
# packages that torch's wheel names and never calls on a CPU; without it the full set is installed.
set -euo pipefail
cd "$(dirname "$0")/.."
venv=$1
stamp=$(cat tests/requirements.txt tests/install_oracle.sh | sha256sum | cut -c1-16)
[ -f "$venv/ok-$stamp" ] && exit 0
rm -rf "$venv"
python3 -m venv "$venv"
pip=("$venv/bin/pip" -q --disable-pip-version-check --no-input)
stubs=${TWINFORGE_SHARED:-../shared}/oracles/cuda_stubs.py
"${pip[@]}" install -r tests/requirements.txt
if [ -f "$stubs" ]; then
  "${pip[@]}" install --no-deps torch==2.15.0 peft==0.21.2 accelerate==1.15.0
  "$venv/bin/python" "$stubs" "$venv" >/dev/null
else
  "${pip[@]}" install torch==2.15.0 peft==0.21.2 accelerate==1.15.0
fi
"$venv/bin/python" -c 'import torch, transformers, peft, jax, libtpu'
touch "$venv/ok-$stamp"
