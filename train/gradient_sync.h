// Data parallel training: every worker computes the gradient of its share of a step's sequences,
// and all get the sum while the backward pass still runs (Li et al. 2020, arXiv 2006.15704,
// section 3.2).
#pragma once

#include <map>
#include <vector>

#include "kernels/comm.h"
#include "nn/module.h"

namespace headroom::train {

class GradientSync {
 public:
  /// Gradients travel in buckets of about this many bytes: enough to be worth a message, few enough
  /// to leave while others are still being computed.
  static constexpr int64_t kBucketBytes = int64_t{25} << 20;

  /// `parameters` in the order of the forward pass; their gradients come in the opposite one.
  GradientSync(kernels::Communicator& workers, const std::vector<nn::Parameter>& parameters,
               int64_t bucket_bytes = kBucketBytes);

  kernels::Communicator& workers() const { return workers_; }
  int64_t buckets() const { return std::ssize(buckets_); }

  /// This worker's gradient of a parameter is complete: an autograd::LeafDone.
  void ready(const nn::Variable& parameter);
  /// Waits until the gradients of all parameters are the sums over the workers.
  void finish();

 private:
  struct Part {
    nn::Variable parameter;
    int64_t first = 0;  // of its numbers in the bucket
  };
  struct Bucket {
    std::vector<Part> parts;
    int64_t size = 0, missing = 0;
    Tensor numbers;  // of the step under way
  };
  static Tensor slot(const Bucket& bucket, const Part& part);

  kernels::Communicator& workers_;
  std::vector<Bucket> buckets_;
  std::map<const void*, std::pair<size_t, size_t>> places_;  // by a parameter's memory
};

/// Throws Error naming the worker when not all hold the same bits of every parameter: they would
/// train different models from there on.
void require_same_weights(kernels::Communicator& workers,
                          const std::vector<nn::Parameter>& parameters, int64_t step);

}  // namespace headroom::train
