// Splitting loops over the threads of one OpenMP pool, the one oneDNN uses too.
#pragma once

#include <omp.h>

#include <algorithm>
#include <cstdint>
#include <exception>
#include <mutex>

namespace headroom::kernels::cpu {

/// Carries an exception out of a parallel region, which none may leave by itself.
class FirstException {
 public:
  template <class F>
  void catch_from(const F& f) {
    try {
      f();
    } catch (...) {
      const std::lock_guard lock(mutex_);
      if (first_ == nullptr) {
        first_ = std::current_exception();
      }
    }
  }
  void rethrow() const {
    if (first_ != nullptr) {
      std::rethrow_exception(first_);
    }
  }

 private:
  std::mutex mutex_;
  std::exception_ptr first_;
};

/// Calls f(begin, end) on disjoint ranges that cover [0, n), one per thread, each a multiple of
/// `grain` long but for the last. Every element has one owner, so results don't depend on the
/// number of threads.
template <class F>
void parallel_ranges(int64_t n, int64_t grain, const F& f) {
  const int64_t pieces = (n + grain - 1) / grain;
  const auto threads = static_cast<int>(std::min<int64_t>(omp_get_max_threads(), pieces));
  if (threads <= 1 || omp_in_parallel() != 0) {
    if (n > 0) {
      f(int64_t{0}, n);
    }
    return;
  }
  FirstException exception;
#pragma omp parallel num_threads(threads)
  {
    const int64_t count = omp_get_num_threads(), me = omp_get_thread_num();
    const int64_t begin = pieces * me / count * grain;
    const int64_t end = std::min(n, pieces * (me + 1) / count * grain);
    if (begin < end) {
      exception.catch_from([&] { f(begin, end); });
    }
  }
  exception.rethrow();
}

/// Elements below which a loop isn't worth waking a thread for.
inline constexpr int64_t kElementGrain = 16384;

/// parallel_ranges over rows of `width` elements.
template <class F>
void parallel_rows(int64_t rows, int64_t width, const F& f) {
  parallel_ranges(rows, std::max<int64_t>(1, kElementGrain / std::max<int64_t>(1, width)), f);
}

}  // namespace headroom::kernels::cpu
