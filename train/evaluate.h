// The exact loss of a token stream: every token but the first is predicted once.
#pragma once

#include <cstdint>
#include <span>

#include "kernels/comm.h"
#include "nn/gpt.h"
#include "text/corpus.h"

namespace headroom::train {

struct EvaluateOptions {
  int64_t context = 0;  // tokens of a window; 0: the model's block_size
  int64_t stride = 0;   // tokens from one window's start to the next one's; 0: context
  int64_t batch_size = 16;
  DType dtype = DType::f32;  // of activations
  /// Who shares the windows; all call evaluate() and get the whole result.
  kernels::Communicator* workers = &kernels::alone();
};

struct Evaluation {
  double loss_nats = 0;  // per token
  double perplexity = 0;
  double bits_per_byte = 0;
  int64_t tokens = 0;  // that were predicted: all but the first
  int64_t bytes = 0;   // that they stand for
  int64_t windows = 0;
  int64_t context = 0;
  int64_t stride = 0;
};

/// Windows of `context` tokens begin every `stride` tokens; the last one is short. A target counts
/// in the first window that holds it, so with stride = context its own window gives it 0 to context
/// - 1 earlier tokens, and with a smaller stride at least context - stride. Losses are summed in
/// f64 and don't depend on batch_size beyond float32's rounding of one batch's mean. Throws
/// InputError for fewer than two tokens and for a stride above the context.
Evaluation evaluate(const nn::GPT& model, const text::Tokens& tokens,
                    const text::Tokenizer& tokenizer, const EvaluateOptions& options);

}  // namespace headroom::train
