// Training's block tables: blocks that follow one another, as the keys themselves do.
#include "kernels/kv_view.h"

#include <vector>

namespace headroom::kernels {

KVView dense_tables(int64_t B, int64_t S, int64_t T, Device device) {
  const int64_t blocks = (S + KVView::kBlock - 1) / KVView::kBlock;
  std::vector<int32_t> slots, starts;
  for (int64_t b = 0; b < B; ++b) {
    for (int64_t n = 0; n < blocks; ++n) {
      slots.push_back(static_cast<int32_t>(b * S + n * KVView::kBlock));
      starts.push_back(static_cast<int32_t>(n * KVView::kBlock));
    }
  }
  const std::vector<int32_t> lengths(static_cast<size_t>(B), static_cast<int32_t>(S));
  const std::vector<int32_t> counts(static_cast<size_t>(B), static_cast<int32_t>(T));
  return {.k = {},
          .v = {},
          .slots = Tensor::from(slots, {B, blocks}, device),
          .starts = Tensor::from(starts, {B, blocks}, device),
          .lengths = Tensor::from(lengths, {B}, device),
          .counts = Tensor::from(counts, {B}, device),
          .dense = {.length = S, .step = S}};
}

KVView dense_view(const KVView& tables, const Tensor& k, const Tensor& v) {
  const int64_t slots = k.dim(0) * k.dim(1);
  KVView view = tables;
  view.k = k.reshape({slots, k.dim(2), k.dim(3)});
  view.v = v.reshape({slots, v.dim(2), v.dim(3)});
  return view;
}

KVView dense_view(const Tensor& k, const Tensor& v, int64_t T) {
  return dense_view(dense_tables(k.dim(0), k.dim(1), T, k.device()), k, v);
}

DenseKeys dense_keys(const Tensor& slots, const Tensor& starts, const Tensor& lengths,
                     const Tensor& counts, int64_t T) {
  const int64_t B = slots.dim(0), blocks = slots.dim(1);
  const auto slot = slots.to_vector<int32_t>(), start = starts.to_vector<int32_t>(),
             length = lengths.to_vector<int32_t>(), count = counts.to_vector<int32_t>();
  const DenseKeys dense{.length = length.front(),
                        .step = B > 1 ? slot[static_cast<size_t>(blocks)] : length.front()};
  for (int64_t b = 0; b < B; ++b) {
    const auto i = static_cast<size_t>(b);
    if (length[i] != dense.length || count[i] != T) {
      return {};
    }
    for (int64_t p = 0; p < dense.length; p += KVView::kBlock) {
      const auto at = static_cast<size_t>(b * blocks + p / KVView::kBlock);
      if (start[at] != p || slot[at] != b * dense.step + p) {
        return {};
      }
    }
  }
  return dense;
}

}  // namespace headroom::kernels
