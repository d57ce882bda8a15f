// Threads and processor features, asked of the system, OpenMP, Highway and oneDNN.
#include "kernels/threads.h"

#if defined(__x86_64__)
#include <cpuid.h>
#endif
#include <hwy/targets.h>
#include <omp.h>
#include <sched.h>
#include <unistd.h>
#include <dnnl.hpp>

#include <algorithm>
#include <bit>
#include <cmath>
#include <fstream>

#include "kernels/comm.h"
#include "tensor/check.h"

namespace headroom::kernels {

namespace {

/// Cores' worth of time the control group grants (cgroup v2: "quota period", or "max period"); a
/// large number when it sets no limit.
int quota_cores() {
  std::ifstream file("/sys/fs/cgroup/cpu.max");
  double quota = 0, period = 0;
  if (file >> quota >> period && period > 0) {
    return std::max(1, static_cast<int>(std::ceil(quota / period)));
  }
  return 1 << 20;
}

}  // namespace

int available_cores() {
  cpu_set_t mask;
  CPU_ZERO(&mask);
  const int online = static_cast<int>(sysconf(_SC_NPROCESSORS_ONLN));
  const int affinity = sched_getaffinity(0, sizeof(mask), &mask) == 0 ? CPU_COUNT(&mask) : online;
  // Workers that a launcher has not bound to cores of their own divide the machine's.
  const int share = std::min(online, quota_cores()) / static_cast<int>(workers_here());
  return std::max(1, std::min(affinity, share));
}

int set_threads(int asked) {
  const int cores = available_cores();
  const int count = asked == 0 ? cores : std::min(asked, cores);
  omp_set_dynamic(0);
  omp_set_num_threads(count);
  return count;
}

int threads() { return omp_get_max_threads(); }

bool has_native_bf16() {
#if defined(__x86_64__)
  return __builtin_cpu_supports("avx512bf16") != 0;
#else
  return false;
#endif
}

bool has_amx_bf16() {
#if defined(__x86_64__)
  constexpr unsigned kBf16 = 1U << 22, kTiles = 1U << 24;  // CPUID, leaf 7, edx
  unsigned a = 0, b = 0, c = 0, d = 0;
  return __get_cpuid_count(7, 0, &a, &b, &c, &d) != 0 && (d & kBf16) != 0 && (d & kTiles) != 0;
#else
  return false;
#endif
}

std::string simd_name() {
  const auto supported = hwy::SupportedTargets();
  return hwy::TargetName(supported & -supported);
}

std::string gemm_name() {
  const dnnl_version_t* v = dnnl::version();
  return fmt::format("oneDNN {}.{}.{}", v->major, v->minor, v->patch);
}

}  // namespace headroom::kernels
