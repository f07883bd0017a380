#!/usr/bin/env bash
# A fresh Debian 12 to a proven twin: installs packages, builds, converts a real checkpoint, proves it, scores it.
# No account, no model download, no Python. What it makes lies in build/quickstart/.
set -euo pipefail
cd "$(dirname "$0")/.."
bash samples/install.sh samples/packages.txt
export CCACHE_DIR=${CCACHE_DIR:-$HOME/.cache/ccache} CCACHE_BASEDIR=$PWD CCACHE_NOHASHDIR=1
cmake -G Ninja -S . -B build/quick -DCMAKE_BUILD_TYPE=Release -DTWINFORGE_TESTS=OFF >/dev/null
ninja -C build/quick --quiet twinforge
twinforge=$PWD/build/quick/cli/twinforge
out=build/quickstart
rm -rf "$out" && mkdir -p "$out"
run() { printf '\n$ twinforge %s\n' "$*"; "$twinforge" "$@"; }

run inspect samples/tiny-llama
run plan samples/tiny-llama --recipe tpu-exact-portable --kernel paged --shards 4
run forge samples/tiny-llama --recipe tpu-exact-portable --kernel paged --shards 4 --out "$out/tiny-llama-portable"
run prove samples/tiny-llama "$out/tiny-llama-portable"
run forge samples/tiny-llama --recipe tpu-exact-native --to twin --chip v6e --out "$out/tiny-llama-native"
run prove samples/tiny-llama "$out/tiny-llama-native"
run unforge "$out/tiny-llama-native" --out "$out/tiny-llama-home"
cmp samples/tiny-llama/model.safetensors "$out/tiny-llama-home/model.safetensors"
echo "the twin came home: model.safetensors is the source's, bit for bit"

# An ONNX model: what it is, the same one again, and its weights in half the bytes.
run inspect samples/mnist/mnist.onnx
run export samples/mnist/mnist.onnx --to onnx --out "$out/mnist-same"
cmp samples/mnist/mnist.onnx "$out/mnist-same/mnist.onnx" && cmp samples/mnist/mnist.onnx.data "$out/mnist-same/mnist.onnx.data"
run export samples/mnist/mnist.onnx --to onnx --store '.*weight=bf16' --data-layout single --out "$out/mnist-small"

for model in llama-3.1-8b qwen3-30b-a3b gpt-oss-120b; do
  run plan --from-config samples/configs/$model/config.json --recipe tpu-exact-native --chip v6e
  run score --from-config samples/configs/$model/config.json --recipe tpu-exact-native --chip v6e --batch 8 --context 2048
done
run plan --from-config samples/configs/qwen2.5-7b/config.json --recipe tpu-exact-native --chip v6e --shards 8
run score samples/tiny-llama --recipe tpu-exact-portable --kernel paged --chip v6e --phase prefill --context 512 \
  --against h100_sxm

run export "$out/tiny-llama-native" --to onnx --out "$out/tiny-llama-onnx"
run inspect "$out/tiny-llama-onnx/model.onnx"

echo
echo "portable twin (loads in unmodified transformers): $out/tiny-llama-portable"
echo "native twin:                                      $out/tiny-llama-native"
echo "as an ONNX model, for any runtime:                $out/tiny-llama-onnx/model.onnx"
echo "its code, read and run:                          python3 $out/tiny-llama-portable/reference/model.py   (pip install jax)"
echo "scores of three public models, from their configs: above"
