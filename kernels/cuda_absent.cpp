// A build without CUDA.
#include "kernels/cuda/cuda_device.h"
#include "tensor/check.h"

namespace headroom::kernels::cuda {

Backend& device_backend(int index) {
  throw InputError(fmt::format(
      "the device is {}, but this build computes on the cpu only: install the CUDA Toolkit, "
      "configure again with -DHEADROOM_CUDA=ON, or use --device cpu",
      Device{Device::Type::cuda, index}));
}

int device_count() { return 0; }

std::string device_version() { return ""; }

}  // namespace headroom::kernels::cuda
