// Rows of float32 as 8-bit integers and one scale each, and rows turned by a Hadamard matrix so
// that few bits hold them well.
#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/device_math.h"
#include "kernels/cuda/launch.h"

namespace headroom::kernels::cuda {

namespace {

__global__ void quantize_each_row(const float* x, int8_t* values, float* scales, int64_t rows,
                                  int64_t width) {
  constexpr float kMostI8 = 127;
  const auto scratch = shared_memory<float>(0, kThreads / kWarp);
  for (int64_t row = blockIdx.x; row < rows; row += gridDim.x) {
    float most = 0;
    for (int64_t i = threadIdx.x; i < width; i += kThreads) {
      most = Maximum()(most, fabsf(x[row * width + i]));
    }
    const float scale = join_block(most, scratch, Maximum()) / kMostI8;
    if (threadIdx.x == 0) {
      scales[row] = scale;
    }
    // A division, not a product with the inverse: |x| / scale may not pass 127 by rounding.
    const float by = scale > 0 ? scale : 1;
    for (int64_t i = threadIdx.x; i < width; i += kThreads) {
      values[row * width + i] = static_cast<int8_t>(rintf(x[row * width + i] / by));
    }
  }
}

/// The fast Walsh-Hadamard transform of each `size` neighbours, a power of two: in stage h the
/// numbers i and i + h become their sum and difference.
template <class S, class C>
__global__ void transform_blocks(const S* x, S* y, C factor, int64_t blocks, int size) {
  const auto numbers = shared_memory<C>(0, size);
  const int thread = static_cast<int>(threadIdx.x), threads = static_cast<int>(blockDim.x);
  for (int64_t block = blockIdx.x; block < blocks; block += gridDim.x) {
    for (int i = thread; i < size; i += threads) {
      numbers[i] = widen<C>(x[block * size + i]);
    }
    for (int h = 1; h < size; h *= 2) {
      __syncthreads();
      for (int pair = thread; pair < size / 2; pair += threads) {
        const int i = pair / h * 2 * h + pair % h;
        const C a = numbers[i], b = numbers[i + h];
        numbers[i] = a + b;
        numbers[i + h] = a - b;
      }
    }
    __syncthreads();
    for (int i = thread; i < size; i += threads) {
      y[block * size + i] = narrow<S>(numbers[i] * factor);
    }
    __syncthreads();  // the next block's numbers take these places
  }
}

}  // namespace

void CudaBackend::quantize_rows(const Tensor& x, Weights& q) {
  launch(quantize_each_row, block_per_row(x.dim(0)), kThreads, kThreads / kWarp * sizeof(float),
         x.data<float>(), q.values.data<int8_t>(), q.scales.data<float>(), x.dim(0), x.dim(1));
}

void CudaBackend::hadamard(const Tensor& x, Tensor& y) {
  for_type(x.dtype(), [&]<class S, class C>() {
    const int64_t width = x.dim(-1), size = width & -width;
    const int64_t threads = std::clamp<int64_t>(size / 2, kWarp, kThreads);
    launch(transform_blocks<S, C>, block_per_row(x.numel() / size), static_cast<unsigned>(threads),
           static_cast<size_t>(size) * sizeof(C), x.data<S>(), y.data<S>(),
           static_cast<C>(1 / std::sqrt(static_cast<double>(size))), x.numel() / size,
           static_cast<int>(size));
  });
}

}  // namespace headroom::kernels::cuda
