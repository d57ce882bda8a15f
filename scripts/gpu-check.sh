#!/bin/bash
# Everything that only a machine with an NVIDIA GPU can show: builds, runs the tests of what computes there on the GPU, the
# kernels' under compute-sanitizer too, trains a run twice, and runs the benchmarks beside the peaks that they measure and a
# sweep. Needs nvcc, cuDNN and NCCL (PyTorch's wheels bring the last two); and either the packages in scripts/setup.sh, the
# headers of cuDNN's frontend and compute-sanitizer, or a network, by which apt and pip bring them.
# Usage: scripts/gpu-check.sh [FOLDER]   its results, by default runs/gpu-check; every step runs, and the check fails with one
# that fails or for want of something is left out
set -u
cd "$(dirname "$0")/.." || exit

# What each step may take of the 520 seconds in all. What it leaves is for those that come after it, each in its proportion.
steps='setup:40 build:140 machine:10 tests:50 cudnn:5 sanitizer:70 repeat:20 bench:60 sweep:125'
seconds_left=520
shares_left=520
left_out=100

mkdir -p "${1:-runs/gpu-check}" || exit 2
export build=build-gpu left_out results=
results=$(cd "${1:-runs/gpu-check}" && pwd)

nvidia-smi -L >/dev/null 2>&1 || { echo "gpu-check.sh: this machine has no NVIDIA GPU (nvidia-smi -L lists none)." >&2; exit 2; }

# What can't be brought is missed by the step that needs it.
setup() {
  scripts/setup.sh gpu || echo "going on with what is installed"
  python3 -m pip install --quiet --no-deps --upgrade --retries 1 --timeout 10 --target $build/wheels \
    nvidia-cudnn-frontend==1.32.0 nvidia-cuda-sanitizer-api==13.0.85 || echo "going on with what is installed"
}

build() {
  cmake --preset test -B $build -DHEADROOM_CUDA=ON -DHEADROOM_MPI=OFF -DCMAKE_CUDA_ARCHITECTURES=native \
    -DCMAKE_INCLUDE_PATH="$PWD/$build/wheels/include" && cmake --build $build --target headroom tests_cuda
}

machine() { nvidia-smi && $build/headroom --version; }

tests() { $build/tests/cuda/tests_cuda --gtest_brief=1; }

# Those of the tests that a build without cuDNN skips.
cudnn() {
  local version
  version=$($build/headroom --version) || return
  [[ $version == *cuDNN* ]] || { echo "a build without cuDNN: build.txt says why"; return $left_out; }
  $build/tests/cuda/tests_cuda --gtest_filter='*Cudnn*'
}

# An error of memory, a race for shared memory, a barrier that not all threads reach: in every family of kernels, at the
# sizes that a slow device gets, each tensor in memory of its own, whose end the checker knows.
sanitizer() {
  local checker tool run runs=() failed=0
  local models='Gradient.*:*/OpsGolden.*:*/GoldenModels.*:*/GoldenTraining.*:RecordedStep.*:GenerationOnADevice.*:OnTheDevice.*'
  checker=$(PATH=$PATH:/usr/local/cuda/bin:$build/wheels/nvidia/cu13/bin command -v compute-sanitizer) ||
    { echo "no compute-sanitizer: the CUDA Toolkit has it, and the wheel nvidia-cuda-sanitizer-api"; return $left_out; }
  export HEADROOM_TEST_SLOW=1 HEADROOM_CUDA_CACHE=0
  for tool in memcheck racecheck synccheck; do
    "$checker" --tool $tool --error-exitcode 1 --log-file "$results/$tool.txt" \
      $build/tests/cuda/tests_cuda --gtest_brief=1 --gtest_filter="-$models" &
    runs+=($!)
  done
  for run in "${runs[@]}"; do wait "$run" || failed=1; done
  tail -n 1 "$results"/{memcheck,racecheck,synccheck}.txt
  return $failed
}

# A text that is always there: this program's own.
quick() {  # COMMAND OUT STEPS
  [ -s "$results/corpus.txt" ] || cat */*.cpp >"$results/corpus.txt"
  rm -rf "${results:?}/$2"
  $build/headroom "$1" configs/gqa-quick.yaml --out "$results/$2" --device cuda --set data.corpus="$results/corpus.txt" \
    --set train.steps="$3" --set train.eval_every="$3"
}

# What train.deterministic promises.
repeat() {
  quick train once 30 && quick train again 30 && cmp "$results"/{once,again}/last.safetensors && echo "two runs gave the same bytes"
}

bench() {
  local model=gpt-124m heads failed=0
  run() {
    echo "\$ headroom bench $*"
    $build/headroom bench "$@" --device cuda || failed=1
  }
  for heads in 12 4 1; do
    run train $model --set model.n_kv_head=$heads --set train.batch_size=16 --precision bf16
  done
  run train $model --set train.batch_size=16 --set train.deterministic=false --precision bf16
  run train $model --precision fp32
  run train $model --precision fp32 --set train.tf32=true
  run roofline $model --precision bf16
  run latency $model --precision bf16
  return $failed
}

# Two minutes of steps, by what the first few take, or what there is.
sweep() {
  local budget=$((seconds < 130 ? seconds : 130)) trial=50
  quick sweep trial $trial && quick sweep sweep $((trial * (budget * 9 / 10 - SECONDS) / (SECONDS + 1)))
}

export -f setup build machine tests cudnn sanitizer quick repeat bench sweep
summary=
failed=
for step in $steps; do
  share=${step#*:} step=${step%:*}
  export seconds=$(((seconds_left - SECONDS) * share / shares_left))
  shares_left=$((shares_left - share))
  start=$SECONDS
  ((seconds > 0)) || seconds=1
  limit=$seconds
  [ $step != setup ] || limit=0  # none: packages must not be left half installed
  printf '\n== %s, in about %d s at most\n' "$step" "$seconds"
  timeout --kill-after=3 $limit bash -c "set -uo pipefail; $step" 2>&1 | tee "$results/$step.txt"
  case ${PIPESTATUS[0]} in
    0) result=ok ;;
    "$left_out") result='LEFT OUT' failed="$failed $step (left out)" ;;
    124 | 137) result='OUT OF TIME' failed="$failed $step" ;;
    *) result=FAILED failed="$failed $step" ;;
  esac
  summary+=$(printf '%-9s %6d s  %s' "$step" $((SECONDS - start)) "$result")$'\n'
  printf '%s' "$summary" >"$results/summary.txt"
done
printf '\n%s%-9s %6d s\n' "$summary" all $SECONDS | tee "$results/summary.txt"
[ -z "$failed" ] || { echo "gpu-check.sh: failed:$failed; what they said is in $results" >&2; exit 1; }
