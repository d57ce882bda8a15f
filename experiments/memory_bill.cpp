// Reading the allocator around what is kept.
#include "experiments/memory_bill.h"

#include <memory>
#include <numeric>

#include "configs/size.h"
#include "infer/block_cache.h"
#include "infer/forward.h"
#include "infer/verify.h"
#include "kernels/backend.h"
#include "tensor/allocator.h"

namespace headroom::experiments {
namespace {

constexpr uint64_t kBillSeed = 1;

int64_t bytes_in_use(Device device) {
  return static_cast<int64_t>(allocator(device).bytes_in_use());
}

/// Rows begin .. end - 1 of the columns of x (N, C), as one view for each row: a view is a range of
/// the first axis, so x is seen as (N * C / width, width).
void keep_views(const Tensor& x, int64_t first, int64_t width, std::vector<Tensor>& kept) {
  const int64_t columns = x.dim(1) / width;
  const Tensor parts = x.reshape({x.dim(0) * columns, width});
  for (int64_t row = 0; row < x.dim(0); ++row) {
    kept.push_back(parts.rows(row * columns + first, row * columns + first + 1));
  }
}

/// The same as one tensor of its own.
Tensor copied(const Tensor& x, int64_t first, int64_t width) {
  std::vector<Tensor> views;
  keep_views(x, first, width, views);
  Tensor copy = Tensor::empty({x.dim(0), width}, x.dtype());
  for (int64_t row = 0; row < x.dim(0); ++row) {
    copy.rows(row, row + 1).copy_from(views[static_cast<size_t>(row)]);
  }
  return copy;
}

}  // namespace

std::vector<MemoryBill> bench_memory(
    const nn::GPT& model, const std::vector<int64_t>& contexts, DType dtype,
    const std::function<void(int64_t done, int64_t all)>& progress) {
  const int64_t all = std::accumulate(contexts.begin(), contexts.end(), int64_t{0});
  int64_t done = 0;
  std::vector<MemoryBill> bills;
  for (const int64_t context : contexts) {
    progress(done, all);
    const infer::Sequences prompt = {
        infer::synthetic_tokens(context, model.vocab_size(), kBillSeed, 0)};
    const int64_t before = bytes_in_use(model.device());
    infer::BlockCache cache(model.config(), infer::BlockTable({}, context), 1, dtype,
                            model.device());
    infer::feed(model, cache, prompt, infer::kPrefillChunk, dtype,
                [](int64_t, int64_t, const Tensor&) {});
    bills.push_back({.context = context,
                     .allocated_bytes = bytes_in_use(model.device()) - before,
                     .formula_bytes = configs::cache_bytes(model.config(), context, 1,
                                                           configs::kv_types_of(dtype))});
    done += context;
  }
  progress(done, all);
  return bills;
}

FusedView hold_fused_projection(const configs::ModelConfig& model, int64_t tokens) {
  const int64_t C = model.n_embd, kv = model.kv_dim(), all = model.q_dim() + 2 * kv;
  check(model.q_dim() % kv == 0, "[fused-view] {} columns of q are no multiple of {} of k",
        model.q_dim(), kv);
  Tensor x = Tensor::empty({tokens, C}, DType::f32), w = Tensor::empty({all, C}, DType::f32);
  fill_normal(x, RandomStream(kBillSeed, "fused x"), 1.0);
  fill_normal(w, RandomStream(kBillSeed, "fused w"), 0.02);
  const int64_t k_at = model.q_dim() / kv, v_at = k_at + 1;  // in columns of width kv
  FusedView held{.formula_bytes =
                     configs::cache_bytes(model, tokens, 1, configs::kv_types_of(DType::f32))};
  for (const bool views : {true, false}) {
    const int64_t before = bytes_in_use(kCpu);
    std::vector<Tensor> kept;
    for (int64_t layer = 0; layer < model.n_layer; ++layer) {
      const Tensor fused = Tensor::empty({tokens, all}, DType::f32);
      kernels::backend(kCpu).matmul(x, kernels::Transpose::no, w, kernels::Transpose::yes,
                                    kernels::Into{fused});
      for (const int64_t part : {k_at, v_at}) {
        if (views) {
          keep_views(fused, part, kv, kept);
        } else {
          kept.push_back(copied(fused, part, kv));
        }
      }
    }
    (views ? held.view_bytes : held.copy_bytes) = bytes_in_use(kCpu) - before;
  }
  return held;
}

}  // namespace headroom::experiments
