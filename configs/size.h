// How large a model is before it exists: parameters, cache, memory of training and FLOP, each by a
// formula. Results stay at the largest int64 instead of wrapping (configs/count.h).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "configs/config.h"
#include "tensor/dtype.h"

namespace headroom::configs {

/// One parameter tensor, named as Hugging Face's Llama names it.
struct ParameterSize {
  std::string name;            // "model.layers.0.self_attn.k_proj.weight"
  std::vector<int64_t> shape;  // (out, in), or (out)
  int64_t count() const;
};

/// The parameters of block `layer`, in the order of the forward pass.
std::vector<ParameterSize> layer_parameters(const ModelConfig& model, int64_t layer);

/// The parameters outside the blocks: embeddings, last norm, untied head.
std::vector<ParameterSize> outer_parameters(const ModelConfig& model, int64_t vocab_size);

/// All parameters: embeddings, blocks, last norm, head. Throws InputError above a million blocks:
/// the totals below need no list.
std::vector<ParameterSize> parameters(const ModelConfig& model, int64_t vocab_size);

int64_t parameter_count(const ModelConfig& model, int64_t vocab_size);

/// What one token adds to the cache of one layer.
struct KVShape {
  int64_t heads;
  int64_t key_size;    // of one head
  int64_t value_size;  // of one head
  /// The value is the first value_size numbers of the key and stored once: MLA's latent.
  bool value_in_key;
};

/// gqa: n_kv_head keys and values of D. mla: one key of R + Dr numbers, the value its first R
/// (arXiv 2405.04434, section 2.1.3).
KVShape kv_shape(const ModelConfig& model);

/// Which keys a layer of the model sees by training: window and sinks as in a mask of attention;
/// window 0: all.
struct LayerWindow {
  int64_t window = 0;
  int64_t sinks = 0;
};

/// The window of the layer, if the pattern gives it one: letter `layer`, the pattern repeated.
LayerWindow layer_window(const ModelConfig& model, int64_t layer);

/// How many of the layers have a window.
int64_t local_layers(const ModelConfig& model);

/// The projections of one block: 2 C D (H + K), or under mla C (H (D + Dr) + R + Dr + H D) + 2 H D
/// R; and their biases if they have any.
int64_t attention_parameters_per_layer(const ModelConfig& model);

/// What keys and values are kept as.
struct KVTypes {
  KVType k = KVType::f32, v = KVType::f32;
  bool operator==(const KVTypes&) const = default;
};
/// Both as elements of a floating type.
KVTypes kv_types_of(DType dtype);
/// "f32", or "k int8, v int4" where they differ.
std::string to_string(const KVTypes& types);

/// Bytes of one key or value of a head, `width` numbers: width times the bytes of an element; int8
/// and int4 take 1 byte and half a byte per number, and 2 for the scale of each 32 begun.
int64_t kv_vector_bytes(KVType type, int64_t width);

/// Bytes that one token adds to the cache of one layer: heads * (bytes of a key + bytes of a
/// value), or, where the value is in the key, heads * bytes of a key.
int64_t cache_bytes_per_token(const ModelConfig& model, KVTypes types);

/// Bytes of the keys and values that a sequence of block_size tokens needs, over block_size: where
/// no layer has a window, n_layer * cache_bytes_per_token.
int64_t mean_cache_bytes_per_token(const ModelConfig& model, KVTypes types);

/// The one cache formula: n_layer * cache_bytes_per_token * tokens * batch. With elements of one
/// size that is 2 (K and V) * n_layer * n_kv_head * head_dim * tokens * batch * bytes per element.
int64_t cache_bytes(const ModelConfig& model, int64_t tokens, int64_t batch, KVTypes types);

/// The formula with its factors and result: "2 * n_layer 6 * n_kv_head 2 * ... = 1572864 bytes".
std::string cache_formula(const ModelConfig& model, int64_t tokens, int64_t batch, KVTypes types);
/// Its part for one token and layer: "2 * n_kv_head 2 * head_dim 32 * bytes 4".
std::string token_formula(const ModelConfig& model, KVTypes types);

/// Parameters and their gradients are float32 in every precision: 4 bytes each.
int64_t weights_bytes(const ModelConfig& model, int64_t vocab_size);

/// float32 state: AdamW keeps two moments per parameter; Muon one per element of a hidden matrix,
/// and AdamW's two for the rest.
int64_t optimizer_bytes(const ModelConfig& model, int64_t vocab_size, OptimizerKind optimizer);

/// An estimate of what the tape holds when the forward pass of `batch` sequences of `tokens` tokens
/// ends, plus the working set of the widest backward step. With e bytes per element, per token and
/// block:
///   e (4 C                two fused add + norm: the sum and the normalised rows of each
///      + 2 (H + K) D      q, k, v as attention read them, and its output
///      + (H + K) D        q and k before qk-norm, if it is on
///      under mla instead of these two:
///        H (2 D + Dr + 3 R) + 3 R + Dr   q_nope and q as attention read it, its output twice and
///                         once more projected; the latent before its norm, k and v
///        + H (D + Dr) + Dr               q and the rotated key before qk-norm, if it is on
///      + 2 F or 3 F)      the MLP's up (and gate) projection and its activation
///   + 4 (H + 2)           float32 log-sum-exp of attention; scale of each norm (LayerNorm: 4,
///                         with the mean)
/// once per token: e 3 C   the embedding, the last norm's rows and the head's input gradient
/// working set:    e (4 C + 2 F) per token, and 4 * 2 V for each of head_rows() rows of logits.
int64_t activation_bytes(const ModelConfig& model, int64_t vocab_size, int64_t tokens,
                         int64_t batch, int64_t bytes_per_element);

/// Rows of logits that the head and the loss hold at once in training: about 16 MB of float32, so
/// that they are still in the cache when their gradient is multiplied.
int64_t head_rows(int64_t vocab_size);

/// Tokens of one step: batch_size * grad_accumulation * block_size.
int64_t tokens_per_step(const Config& config);

/// Multiply-adds of attention over a sequence of `tokens` tokens, all layers: H * (key + value
/// width) for each key that a query sees.
int64_t attention_multiply_adds(const ModelConfig& model, int64_t tokens);

/// FLOP of a training step over `tokens` tokens in sequences of block_size = T: 6 * (matrix
/// parameters that multiply activations, head included) * tokens + 6 * n_layer * H * D * (T + 1) *
/// tokens. Causal attention reads (T + 1) / 2 keys per query on average, in a layer with a window
/// fewer; under mla a key and its value are R + Dr and R wide instead of 2 D together.
/// Recomputation, optimizer and masked tiles don't count.
int64_t step_flop(const ModelConfig& model, int64_t vocab_size, int64_t tokens);

/// FLOP of the forward pass of a prompt of T = `tokens` tokens, the head computed for the last one
/// only: 2 * (layer matrices * T + vocab_size * C) + 2 * n_layer * H * D * (T + 1) * T, with
/// windows and mla as in step_flop.
int64_t prefill_flop(const ModelConfig& model, int64_t vocab_size, int64_t tokens);

/// FLOP of one decoded token that attends to `context` keys: 2 * (matrices, head included) + 4 *
/// n_layer * H * D * context, with windows and mla as in step_flop.
int64_t decode_flop(const ModelConfig& model, int64_t vocab_size, int64_t context);

}  // namespace headroom::configs
