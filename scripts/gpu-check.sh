#!/bin/bash
# Everything that only a machine with an NVIDIA GPU can show: builds, runs the tests of kernels, operators and models on the
# GPU, some of them under compute-sanitizer, the benchmarks beside the peaks that they measure, and a sweep.
# Usage: scripts/gpu-check.sh [FOLDER]   its results, by default runs/gpu-check; every step runs, one failure fails the check
set -u
cd "$(dirname "$0")/.."

results=${1:-runs/gpu-check}
build=build-gpu
mkdir -p "$results" || exit 2
results=$(cd "$results" && pwd)

[ -e /dev/nvidiactl ] || { echo "gpu-check.sh: this machine has no NVIDIA GPU (no /dev/nvidiactl)." >&2; exit 2; }

# What apt can't bring, where there is no internet, CMake then names.
setup() { scripts/setup.sh test || echo "going on with what is installed"; }

build() {
  cmake --preset test -B $build -DHEADROOM_CUDA=ON -DCMAKE_CUDA_ARCHITECTURES=native &&
    cmake --build $build --target headroom tests_kernels tests_autograd tests_nn tests_train
}

machine() {
  nvidia-smi && $build/headroom --version
}

# What is parameterised by device runs on the GPU; the rest of these programs is the CPU's, whose tests run elsewhere.
run_tests() {  # LAYER TESTS [COMMAND...]
  local layer=$1 tests=$2
  shift 2
  "$@" $build/tests/tests_$layer --gtest_filter="$tests" --gtest_brief=1
}

tests() {
  local failed=0
  export HEADROOM_TEST_DEVICE=cuda
  run_tests kernels '*' timeout 120 || failed=1
  run_tests autograd '*' timeout 60 || failed=1
  run_tests nn '*Golden*' timeout 60 || failed=1
  run_tests train '*Golden*' timeout 60 || failed=1
  return $failed
}

# An error of memory, a race for shared memory, a barrier that not all threads reach: in every family of kernels, at the
# sizes that a slow device gets.
sanitizer() {
  local checker tool failed=0
  checker=$(command -v compute-sanitizer || echo /usr/local/cuda/bin/compute-sanitizer)
  [ -x "$checker" ] || { echo "no compute-sanitizer: it comes with the CUDA Toolkit, not with Python's wheels"; return 1; }
  export HEADROOM_TEST_DEVICE=cuda-slow
  for tool in memcheck racecheck synccheck; do
    run_tests kernels '*' timeout 60 "$checker" --tool $tool --error-exitcode 1 --log-file "$results/$tool.txt" || failed=1
    tail -n 1 "$results/$tool.txt"
  done
  return $failed
}

bench() {
  local model=gpt-124m failed=0
  run() {
    echo "\$ headroom $*"
    timeout 90 $build/headroom "$@" --device cuda || failed=1
  }
  for heads in 12 4 1; do
    run bench train $model --set model.n_kv_head=$heads --set model.block_size=1024 --set train.batch_size=16 --precision bf16
  done
  run bench train $model --set model.block_size=1024 --set train.batch_size=16 --set train.deterministic=false --precision bf16
  run bench train $model --set model.block_size=1024 --set train.batch_size=8 --precision fp32
  run bench train $model --set model.block_size=1024 --set train.batch_size=8 --precision fp32 --set train.tf32=true
  run bench roofline $model --precision bf16
  run bench latency $model --precision bf16
  return $failed
}

sweep() {
  local corpus
  corpus=$(scripts/corpus.sh) &&
    timeout 150 $build/headroom sweep configs/gqa-quick.yaml --set data.corpus="$corpus" --device cuda --out "$results/sweep"
}

steps='setup build machine tests sanitizer bench sweep'
summary=
failed=
for step in $steps; do
  printf '\n== %s\n' "$step"
  start=$SECONDS
  if (set -o pipefail; "$step" 2>&1 | tee "$results/$step.txt"); then result=ok; else result=FAILED failed="$failed $step"; fi
  summary+=$(printf '%-9s %6d s  %s' "$step" $((SECONDS - start)) $result)$'\n'
done
printf '\n%s%-9s %6d s\n' "$summary" all $SECONDS | tee "$results/summary.txt"
[ -z "$failed" ] || { echo "gpu-check.sh: failed:$failed; what they said is in $results" >&2; exit 1; }
