// Which calls go to cuDNN, and the order of its log-sum-exps. What cuDNN itself computes, only a
// GPU can tell; in the harness it is absent and our kernels serve.
#include <gtest/gtest.h>

#include <functional>

#include "kernels/cuda/cudnn_attention.h"
#include "kernels/cuda/swap_last_axes.h"
#include "kernels/kv_view.h"
#include "tests/simt/gpu.h"

namespace headroom::testing {
namespace {

namespace cuda = kernels::cuda;
using kernels::AttentionInputs;

Tensor zeros(const Shape& shape, DType type = DType::bf16) {
  return Tensor::zeros(shape, type, gpu());
}

/// Keys (B, S, K, D) and queries (B, T, H, D) as training and prefill have them.
AttentionInputs dense(int64_t T, int64_t S, int64_t size, int64_t value_size) {
  constexpr int64_t B = 2, H = 4, K = 2;
  AttentionInputs in;
  in.q = zeros({B, T, H, size});
  in.kv = kernels::dense_view(zeros({B, S, K, size}), zeros({B, S, K, value_size}), T);
  return in;
}

TEST(CudnnTakes, TrainingAndLongPiecesOfAPrompt) {
  for (const int64_t size : {8, 64, 104, 128}) {
    EXPECT_TRUE(cuda::cudnn_takes(dense(128, 128, size, size))) << size;
  }
  EXPECT_TRUE(cuda::cudnn_takes(dense(64, 192, 64, 64)));
  AttentionInputs window = dense(128, 128, 64, 64);
  window.mask = {.window = 5};
  EXPECT_TRUE(cuda::cudnn_takes(window));
  AttentionInputs all = dense(128, 128, 64, 64);
  all.mask = {.window = 0, .sinks = 4};  // all are seen anyway
  EXPECT_TRUE(cuda::cudnn_takes(all));
}

TEST(CudnnTakes, OnlySizesThatItHas) {
  EXPECT_FALSE(cuda::cudnn_takes(dense(128, 128, 60, 60)));
  EXPECT_FALSE(cuda::cudnn_takes(dense(128, 128, 136, 136)));
  EXPECT_FALSE(cuda::cudnn_takes(dense(128, 128, 64, 32)));
  EXPECT_FALSE(cuda::cudnn_takes(dense(100, 100, 64, 64)));
  EXPECT_FALSE(cuda::cudnn_takes(dense(64, 100, 64, 64)));
}

TEST(CudnnTakes, NothingThatItsGraphLeavesOut) {
  const AttentionInputs good = dense(128, 128, 64, 64);
  const std::vector<std::pair<const char*, std::function<void(AttentionInputs&)>>> changes = {
      {"f32 queries", [](auto& in) { in.q = zeros(in.q.shape(), DType::f32); }},
      {"f32 keys", [](auto& in) { in.kv.k = zeros(in.kv.k.shape(), DType::f32); }},
      {"f16 values", [](auto& in) { in.kv.v = zeros(in.kv.v.shape(), DType::f16); }},
      {"no values", [](auto& in) { in.kv.v = Tensor(); }},
      {"coded keys",
       [](auto& in) {
         in.kv.k_code.scales = zeros({256, 2, 2});
       }},
      {"coded values",
       [](auto& in) {
         in.kv.v_code.scales = zeros({256, 2, 2});
       }},
      {"blocks anywhere", [](auto& in) { in.kv.dense = {}; }},
      {"queries for sinks", [](auto& in) { in.q_sink = in.q; }},
      {"sink logits", [](auto& in) { in.sink_logits = zeros({4}, DType::f32); }},
      {"sinks beside a window", [](auto& in) { in.mask = {.window = 5, .sinks = 1}; }},
      {"keys that don't begin at 16 bytes",
       [](auto& in) {
         const Tensor longer = zeros({256 * 2 * 64 + 1});
         in.kv.k = longer.rows(1, longer.numel()).reshape(in.kv.k.shape());
       }},
  };
  for (const auto& [name, change] : changes) {
    AttentionInputs in = good;
    change(in);
    EXPECT_FALSE(cuda::cudnn_takes(in)) << name;
  }
  EXPECT_TRUE(cuda::cudnn_takes(good));
}

TEST(CudnnBackward, RepeatsWhereItIsKnownTo) {
  for (const int major : {8, 9}) EXPECT_TRUE(cuda::cudnn_backward_repeats(major, 91200));
  EXPECT_TRUE(cuda::cudnn_backward_repeats(10, 91801));
  EXPECT_FALSE(cuda::cudnn_backward_repeats(10, 91800));
  EXPECT_FALSE(cuda::cudnn_backward_repeats(12, 92600));
}

TEST(SwapLastAxes, TurnsEachMatrix) {
  constexpr int64_t B = 3, M = 5, N = 7;
  std::vector<float> x(B * M * N);
  for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i);
  Tensor y = Tensor::empty({B, N, M}, DType::f32, gpu());
  cuda::swap_last_axes(Tensor::from(x, {B, M, N}, gpu()), y);
  const auto found = y.to(kCpu).to_vector<float>();
  for (int64_t b = 0; b < B; ++b) {
    for (int64_t m = 0; m < M; ++m) {
      for (int64_t n = 0; n < N; ++n) {
        EXPECT_EQ(found[static_cast<size_t>((b * N + n) * M + m)],
                  x[static_cast<size_t>((b * M + m) * N + n)]);
      }
    }
  }
}

}  // namespace
}  // namespace headroom::testing
