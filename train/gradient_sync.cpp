// Buckets of gradients, summed as they fill.
#include "train/gradient_sync.h"

#include <cstring>

#include "kernels/backend.h"
#include "tensor/check.h"

namespace headroom::train {

GradientSync::GradientSync(kernels::Communicator& workers,
                           const std::vector<nn::Parameter>& parameters, int64_t bucket_bytes)
    : workers_(workers) {
  for (auto next = parameters.rbegin(); next != parameters.rend(); ++next) {
    const nn::Parameter& p = *next;
    const Tensor& value = p.value.value();
    const bool fits =
        !buckets_.empty() && buckets_.back().parts.front().parameter.dtype() == value.dtype() &&
        (buckets_.back().size + value.numel()) * static_cast<int64_t>(size_of(value.dtype())) <=
            bucket_bytes;
    if (!fits) {
      buckets_.emplace_back();
    }
    Bucket& bucket = buckets_.back();
    places_[value.raw()] = {buckets_.size() - 1, bucket.parts.size()};
    bucket.parts.push_back({p.value, bucket.size});
    bucket.size += value.numel();
    bucket.missing = std::ssize(bucket.parts);
  }
}

Tensor GradientSync::slot(const Bucket& bucket, const Part& part) {
  const Shape& shape = part.parameter.shape();
  return bucket.numbers.rows(part.first, part.first + shape.numel()).reshape(shape);
}

void GradientSync::ready(const nn::Variable& parameter) {
  const auto place = places_.find(parameter.value().raw());
  check(place != places_.end(), "[train] a gradient of a tensor {} that is no parameter",
        parameter.shape());
  Bucket& bucket = buckets_[place->second.first];
  const Part& part = bucket.parts[place->second.second];
  if (!bucket.numbers.defined()) {
    bucket.numbers = Tensor::empty({bucket.size}, parameter.dtype(), parameter.device());
  }
  slot(bucket, part).copy_from(parameter.grad());
  if (--bucket.missing == 0) {
    workers_.begin_sum(bucket.numbers);
  } else {
    workers_.progress();
  }
}

void GradientSync::finish() {
  workers_.finish();
  for (Bucket& bucket : buckets_) {
    check(bucket.missing == 0, "[train] {} gradients of a bucket never came", bucket.missing);
    for (const Part& part : bucket.parts) {
      Tensor(part.parameter.grad()).copy_from(slot(bucket, part));
    }
    bucket.numbers = Tensor();
    bucket.missing = std::ssize(bucket.parts);
  }
}

void require_same_weights(kernels::Communicator& workers,
                          const std::vector<nn::Parameter>& parameters, int64_t step) {
  for (const nn::Parameter& p : parameters) {
    const Tensor& own = p.value.value();
    Tensor first = own.clone();
    workers.broadcast(first, 0);
    const bool same = std::memcmp(first.to(kCpu).raw(), own.to(kCpu).raw(), own.nbytes()) == 0;
    check(same, "[train] {} of worker {} is not that of worker 0 after step {}", p.name,
          workers.rank(), step);
  }
}

}  // namespace headroom::train
