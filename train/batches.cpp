// Where each of a step's sequences starts.
#include "train/batches.h"

#include <algorithm>
#include <numeric>

#include "tensor/check.h"
#include "tensor/rng.h"

namespace headroom::train {

Share share_of_step(int64_t batch_size, int64_t grad_accumulation, int64_t workers) {
  const int64_t sequences = batch_size * grad_accumulation;
  check_input(sequences % workers == 0,
              "train.batch_size {} * train.grad_accumulation {} = {} sequences a step, which don't "
              "divide among {} workers",
              batch_size, grad_accumulation, sequences, workers);
  const int64_t each = sequences / workers;
  const int64_t size = std::gcd(batch_size, each);
  return {size, each / size};
}

Batches::Batches(std::vector<int32_t> tokens, const BatchOptions& options)
    : tokens_(std::move(tokens)), options_(options) {
  const auto count = static_cast<int64_t>(tokens_.size());
  check_input(count > options.block_size,
              "[batches] block_size {} needs at least {} tokens: got {}", options.block_size,
              options.block_size + 1, count);
}

int64_t Batches::sequences_per_pass() const {
  return (static_cast<int64_t>(tokens_.size()) - 1) / options_.block_size;
}

int64_t Batches::leftover() const {
  return static_cast<int64_t>(tokens_.size()) - 1 - sequences_per_pass() * options_.block_size;
}

int64_t Batches::start(int64_t step, int64_t index) const {
  if (options_.order == configs::Order::sequential) {
    const int64_t sequence = (step - 1) * sequences_per_step() + index;
    return sequence % sequences_per_pass() * options_.block_size;
  }
  const RandomStream stream(options_.seed, "batches", static_cast<uint64_t>(step),
                            static_cast<uint64_t>(index));
  const size_t starts = tokens_.size() - static_cast<size_t>(options_.block_size);
  return static_cast<int64_t>(stream.integer(0, starts));
}

int64_t Batches::pass(int64_t step) const {
  const int64_t sequences = step * sequences_per_step();
  return sequences == 0 ? 1 : (sequences - 1) / sequences_per_pass() + 1;
}

Batch Batches::get(int64_t step, int64_t micro) const {
  const int64_t B = options_.batch_size, T = options_.block_size;
  const Shape shape{B, T};
  Batch batch{Tensor::empty(shape, DType::i32), Tensor::empty(shape, DType::i32)};
  for (int64_t b = 0; b < B; ++b) {
    const int32_t* from = tokens_.data() + start(step, micro * B + b);
    std::copy_n(from, T, batch.tokens.data<int32_t>() + b * T);
    std::copy_n(from + 1, T, batch.targets.data<int32_t>() + b * T);
  }
  return batch;
}

}  // namespace headroom::train
