#!/bin/sh
# Installs what headroom needs on Debian 12 with apt: only what is missing, and nothing when nothing is.
# Usage: scripts/setup.sh [build|gpu|test|ci]
#   build  compiler, libraries, and what `make experiment` runs (default)
#   gpu    compiler and libraries, and what scripts/gpu-check.sh needs
#   test   the same as build, and what `make test` needs
#   ci     the same, and what .ci/run needs
set -eu

fail() {
  echo "setup.sh: $1" >&2
  exit 1
}

packages='build-essential cmake ninja-build
  libfmt-dev nlohmann-json3-dev libxxhash-dev libyaml-cpp-dev libdnnl-dev libhwy-dev libpcre2-dev
  libboost-math-dev libeigen3-dev libcli11-dev'
experiment_packages='gnuplot-nox ca-certificates curl bible-kjv'
test_packages='libgtest-dev chromium fonts-dejavu-core libopenmpi-dev openmpi-bin'
ci_packages='clang clang-format clang-tidy libomp-dev jq libbenchmark-dev python3-venv'
case "${1:-build}" in
  build) packages="$packages $experiment_packages" ;;
  gpu) packages="$packages libgtest-dev" ;;
  test) packages="$packages $experiment_packages $test_packages" ;;
  ci) packages="$packages $experiment_packages $test_packages $ci_packages" ;;
  *) fail "unknown set '$1': give build, gpu, test or ci." ;;
esac

command -v dpkg-query >/dev/null && command -v apt-get >/dev/null ||
  fail "this is not Debian (no dpkg-query or no apt-get), so install the counterparts of these packages by hand: $(echo $packages)"

installed=$(dpkg-query -W -f '${Package}=${db:Status-Status}\n' 2>/dev/null | sed -n 's/=installed$//p')
missing=
for package in $packages; do
  echo "$installed" | grep -qxF "$package" || missing="$missing $package"
done
[ -n "$missing" ] || exit 0

if [ "$(id -u)" = 0 ]; then
  as_root=
else
  command -v sudo >/dev/null || fail "run this as root, or install sudo, because these packages are missing:$missing"
  as_root=sudo
fi

apt() {
  $as_root env DEBIAN_FRONTEND=noninteractive apt-get -qq -o Dpkg::Use-Pty=0 -o DPkg::Lock::Timeout=300 \
    -o Acquire::Retries=3 "$@"
}

echo "Installing with apt:$missing" >&2
log=$(mktemp)
trap 'rm -f "$log"' EXIT
# A source that can't be refreshed need not be one of ours: what counts is whether the install works.
{ apt update || true; apt install -y --no-install-recommends $missing; } >"$log" 2>&1 || {
  cat "$log" >&2
  fail "apt could not install$missing (its messages are above)."
}
