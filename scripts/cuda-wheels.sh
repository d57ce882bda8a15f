#!/bin/sh
# Brings what a program for NVIDIA GPUs is built from, as NVIDIA's Python wheels: nvcc, cuBLASLt, cuDNN, its frontend's
# headers and NCCL, in a virtual environment (3 GB of disk). Does nothing where all are there. Prints nvcc's path on stdout,
# and all else on stderr. CMake finds the rest through the python3 that is first on PATH:
#   nvcc=$(scripts/cuda-wheels.sh FOLDER) && PATH=$(realpath FOLDER)/bin:$PATH CUDACXX=$nvcc cmake --preset cuda
# Usage: scripts/cuda-wheels.sh FOLDER
set -eu

# CUDA 13.0 throughout. They are named one by one, because the frontend would bring a GB more than its headers need.
wheels='nvidia-cuda-nvcc==13.0.88 nvidia-cuda-crt==13.0.88 nvidia-nvvm==13.0.88 nvidia-cuda-runtime==13.0.96
  nvidia-cuda-cccl==13.0.85 nvidia-cuda-nvrtc==13.0.88 nvidia-cublas==13.0.2.14
  nvidia-cudnn-cu13==9.19.0.56 nvidia-cudnn-frontend==1.32.0 nvidia-nccl-cu13==2.28.9'

fail() {
  echo "cuda-wheels.sh: $1" >&2
  exit "${2:-1}"
}

[ $# -eq 1 ] || fail "give one folder to put the wheels in." 2
folder=$1
command -v python3 >/dev/null || fail "there is no python3 to fetch NVIDIA's wheels: install python3-venv."
[ -x "$folder/bin/pip" ] || python3 -m venv "$folder" >&2 ||
  fail "python3 can't make a virtual environment in $folder (its message is above; on Debian it needs python3-venv)."
"$folder/bin/pip" install --quiet --disable-pip-version-check --no-deps $wheels >&2 ||
  fail "pip could not bring NVIDIA's wheels into $folder (its message is above): they take a network and 3 GB of disk."
"$folder/bin/python3" -c 'import sysconfig; print(sysconfig.get_path("purelib") + "/nvidia/cu13/bin/nvcc")'
