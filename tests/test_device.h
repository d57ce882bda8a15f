// Where the tests of kernels run them. A test makes its operands on the host, moves them there, and
// looks at results on the host again.
#pragma once

#include <memory>

#include "kernels/backend.h"

namespace headroom::testing {

/// What these tests are linked for: the CPU, the GPU of the harness (simt), or the first GPU
/// (cuda).
Device test_device();
/// That device's kernels.
kernels::Backend& test_backend();
/// Whether it is so slow that only the smaller problems of a list are for it: in the harness, and
/// on a GPU where the environment has HEADROOM_TEST_SLOW, as under a checker of each access.
bool test_device_is_slow();

/// Whether it is the harness, whose cuBLASLt is a double that rounds as it is told to and sums each
/// row alike. The real one may round less, and choose a kernel by the number of rows.
bool test_device_is_a_double();

/// While it lives, whatever reads or writes memory of the device from the host ends the test, on
/// devices that can tell: those of the harness.
std::shared_ptr<void> keep_host_out();

/// A tensor on the tested device; an absent one stays absent.
inline Tensor there(const Tensor& x) { return x.defined() ? x.to(test_device()) : x; }
inline Tensor here(const Tensor& x) { return x.defined() ? x.to(kCpu) : x; }

}  // namespace headroom::testing
