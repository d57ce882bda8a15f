#include "nn/attend.h"

#include "kernels/kv_view.h"

namespace headroom::nn {

autograd::Variable attend(const autograd::Variable& q, const autograd::Variable& k,
                          const autograd::Variable& v, int64_t layer, const Pass& pass,
                          autograd::AttentionOptions options) {
  const kernels::KVView kv = pass.cache == nullptr
                                 ? kernels::dense_view(pass.tables, k.value(), v.value())
                                 : pass.cache->append(layer, k.value(), v.value(), pass.counts);
  if (pass.watch != nullptr) {
    options.watch = [&](const kernels::AttentionInputs& in, const Tensor& lse) {
      (*pass.watch)(layer, in, lse);
    };
  }
  return autograd::attention(q, k, v, kv, options);
}

}  // namespace headroom::nn
