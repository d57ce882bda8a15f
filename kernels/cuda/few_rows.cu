// Products with few rows: each weight is read once, by one load for eight, widened in registers,
// and meets all rows of x while it is there. A warp has two outputs, its lanes share their sums;
// what a lane reads of x comes out of the first cache.
#include "kernels/cuda/few_rows.h"

#include "kernels/cuda/device_math.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/stored_rows.h"
#include "kernels/cuda/tensor_core.h"

namespace headroom::kernels::cuda {

namespace {

constexpr int kBlockThreads = 128, kSide = 2;  // outputs of a warp
constexpr int kOutputs = kBlockThreads / kWarp * kSide;
constexpr int kMostMatrices = 4;  // of one launch: queries, keys and values; gate and up

struct Matrix {
  StoredRows values;    // `outputs` vectors
  const float* scales;  // (outputs), with i8
  const void* bias;     // (outputs), of y's type, or absent
  void* y;              // (rows, outputs)
  int outputs;
};

struct ProductArguments {
  StoredRows x;
  int rows;
  bool y_is_f32;
  int matrices;
  Matrix all[kMostMatrices];
};

/// Numbers [i, i + kSlice) of a row of weights, zeros beyond the end.
template <Storage kStorage>
__device__ void load_weights(const StoredRows& from, int row, int i, float (&to)[kSlice]) {
  if constexpr (kStorage != Storage::i8) {
    Reader<kStorage>{from}.slice(row, i, to);
  } else {
    const auto* integers = static_cast<const int8_t*>(from.values) + row * from.stride;
    if (from.slices_are_aligned && i < from.width) {
      return load_integers(integers + i, to);
    }
    for (int j = 0; j < kSlice; ++j) {
      to[j] = i + j < from.width ? static_cast<float>(integers[i + j]) : 0.0F;
    }
  }
}

template <class Y>
__device__ void write_output(const Matrix& m, int row, int output, float sum) {
  if (m.bias != nullptr) {
    sum += widen<float>(static_cast<const Y*>(m.bias)[output]);
  }
  static_cast<Y*>(m.y)[static_cast<int64_t>(row) * m.outputs + output] = narrow<Y>(sum);
}

template <class S, Storage kStorage, int kRows>
__global__ void __launch_bounds__(kBlockThreads) multiply_few_rows(ProductArguments a) {
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  int block = static_cast<int>(blockIdx.x), which = 0;
  while (block >= (a.all[which].outputs + kOutputs - 1) / kOutputs) {
    block -= (a.all[which].outputs + kOutputs - 1) / kOutputs;
    ++which;
  }
  const Matrix& m = a.all[which];
  const int output = block * kOutputs + warp * kSide, first = static_cast<int>(blockIdx.y) * kRows;
  if (output >= m.outputs) {
    return;  // the whole warp
  }
  const Reader<kStorageOf<S>> x{a.x};
  float sums[kRows][kSide] = {};
  for (int i = lane * kSlice; i < a.x.width; i += 32 * kSlice) {
    float weights[kSide][kSlice];
    HEADROOM_UNROLL
    for (int side = 0; side < kSide; ++side) {
      const int row = output + side < m.outputs ? output + side : output;
      load_weights<kStorage>(m.values, row, i, weights[side]);
    }
    HEADROOM_UNROLL
    for (int row = 0; row < kRows; ++row) {
      float numbers[kSlice];
      x.slice(first + row < a.rows ? first + row : a.rows - 1, i, numbers);
      HEADROOM_UNROLL
      for (int side = 0; side < kSide; ++side) {
        HEADROOM_UNROLL
        for (int e = 0; e < kSlice; ++e) {
          sums[row][side] += numbers[e] * weights[side][e];
        }
      }
    }
  }
  HEADROOM_UNROLL
  for (int row = 0; row < kRows; ++row) {
    HEADROOM_UNROLL
    for (int side = 0; side < kSide; ++side) {
      float sum = join_warp(sums[row][side], Sum());
      if (lane != 0 || first + row >= a.rows || output + side >= m.outputs) {
        continue;
      }
      sum = m.scales == nullptr ? sum : sum * m.scales[output + side];
      if (a.y_is_f32) {
        write_output<float>(m, first + row, output + side, sum);
      } else {
        write_output<S>(m, first + row, output + side, sum);
      }
    }
  }
}

template <class S, Storage kStorage, int kRows>
void launch_products(const ProductArguments& a) {
  int blocks = 0;
  for (int i = 0; i < a.matrices; ++i) {
    blocks += (a.all[i].outputs + kOutputs - 1) / kOutputs;
  }
  launch(multiply_few_rows<S, kStorage, kRows>,
         dim3(static_cast<unsigned>(blocks), static_cast<unsigned>((a.rows + kRows - 1) / kRows)),
         dim3(kBlockThreads), 0, a);
}

template <class S, Storage kStorage>
void launch_for_rows(const ProductArguments& a) {
  if (a.rows == 1) {
    launch_products<S, kStorage, 1>(a);
  } else if (a.rows == 2) {
    launch_products<S, kStorage, 2>(a);
  } else if (a.rows <= 4) {
    launch_products<S, kStorage, 4>(a);
  } else {
    launch_products<S, kStorage, kFewRows>(a);
  }
}

template <class S>
void launch_for_type(DType weights, const ProductArguments& a) {
  switch (weights) {
    case DType::f32:
      return launch_for_rows<S, Storage::f32>(a);
    case DType::bf16:
      return launch_for_rows<S, Storage::bf16>(a);
    default:
      return launch_for_rows<S, Storage::i8>(a);
  }
}

Matrix matrix_of(const Weights& w, Tensor& y) {
  return {stored_rows(w.values), w.scales.defined() ? w.scales.data<float>() : nullptr,
          w.bias.defined() ? w.bias.raw() : nullptr, y.raw(), static_cast<int>(w.values.dim(0))};
}

}  // namespace

void few_rows(const Tensor& x, std::span<const Weights> w, std::span<Tensor> y) {
  if (x.dim(0) == 0) {
    return;
  }
  size_t next = 0;
  while (next < w.size()) {
    const DType weights = w[next].values.dtype(), result = y[next].dtype();
    ProductArguments a{stored_rows(x), static_cast<int>(x.dim(0)), result == DType::f32, 0, {}};
    while (next < w.size() && a.matrices < kMostMatrices && w[next].values.dtype() == weights &&
           y[next].dtype() == result) {
      a.all[a.matrices++] = matrix_of(w[next], y[next]);
      ++next;
    }
    if (x.dtype() == DType::bf16) {
      launch_for_type<bf16>(weights, a);
    } else {
      launch_for_type<float>(weights, a);
    }
  }
}

}  // namespace headroom::kernels::cuda
