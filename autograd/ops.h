// The differentiable operators. Each checks its inputs, allocates its result, runs one kernel of
// the backend and records the kernel that takes the gradient back. Letters in shapes are those of
// kernels/backend.h.
#pragma once

#include <functional>
#include <span>
#include <utility>
#include <vector>

#include "autograd/variable.h"
#include "kernels/backend.h"
#include "tensor/rng.h"

namespace headroom::autograd {

using kernels::Activation;
using kernels::AttentionMask;
using kernels::KVView;
using kernels::NormKind;
using kernels::RopeStyle;
using kernels::Transpose;

// --- ops_math.cpp ---

/// x (..., in) times the transpose of w (out, in), plus b (out) if there is one: (..., out). w and
/// b are of the compute type; under bf16 activations the product uses w rounded to bf16.
Variable linear(const Variable& x, const Variable& w, const Variable& b = {});
/// The products of x (..., in) with several matrices (out, in) as inference keeps them, in one
/// sweep over their weights: (..., out) each, of x's type. Nothing is recorded.
std::vector<Variable> linear(const Variable& x, std::span<const kernels::Weights> w);
/// Each head through a matrix of its own: x (..., H, in) times op(w[h]) (in, out): (..., H, out). w
/// holds the heads' matrices one under the other, (H * in, out), or (H * out, in) for their
/// transposes.
Variable head_linear(const Variable& x, const Variable& w, Transpose op);
/// a + b, same shape and type.
Variable add(const Variable& a, const Variable& b);
Variable activation(Activation kind, const Variable& x);
/// silu(gate) * up.
Variable swiglu(const Variable& gate, const Variable& up);
/// cap * tanh(x / cap).
Variable softcap(const Variable& x, double cap);
/// Zeroes elements with probability p and scales the others by 1 / (1 - p); element i is decided by
/// the stream's number first + i.
Variable dropout(const Variable& x, double p, const RandomStream& stream, int64_t first = 0);

// --- ops_columns.cpp ---

/// {the first `width` columns of x (..., C), the others}.
std::pair<Variable, Variable> split(const Variable& x, int64_t width);
/// a (..., A) and b (..., B) side by side: (..., A + B).
Variable concat(const Variable& a, const Variable& b);

// --- ops_embedding.cpp ---

/// Rows ids (...) of w (V, C), as activations of type `dtype`: (..., C). Throws on an id outside
/// [0, V) where ids are on the host; those on a GPU were looked at by whoever put them there.
Variable embedding(const Tensor& ids, const Variable& w, DType dtype);

// --- ops_norm.cpp ---

/// norm(x) * w + b over the last axis; w and b (C) optional.
Variable norm(NormKind kind, const Variable& x, const Variable& w, const Variable& b, double eps);
/// {x + delta, norm(x + delta)} in one pass: the residual addition and the norm that follows it.
std::pair<Variable, Variable> add_norm(NormKind kind, const Variable& x, const Variable& delta,
                                       const Variable& w, const Variable& b, double eps);

// --- ops_attention.cpp ---

/// Rotates each head of x (B, T, heads, D) by the angles of table (R, D/2, 2); R divides B * T.
Variable rope(const Variable& x, const Tensor& table, RopeStyle style);

struct AttentionOptions {
  double scale = 1.0;
  AttentionMask mask;
  Variable sink_logits;  // (H), optional
  Tensor q_sink;         // (B, T, H, Dk), optional; inference only
  /// Sees what the kernel was given and the log-sum-exp (B, T, H) it found; optional.
  std::function<void(const kernels::AttentionInputs& in, const Tensor& lse)> watch = {};
};
/// Causal attention of q (B, T, H, Dk) over what `kv` shows: (B, T, H, Dv). While recording, kv
/// must be the dense view of k (B, S, K, Dk) and v (B, S, K, Dv), to which the gradients go.
Variable attention(const Variable& q, const Variable& k, const Variable& v, const KVView& kv,
                   const AttentionOptions& options);

// --- ops_loss.cpp ---

/// Mean over the targets that are not -1 of -log softmax(softcap(x wᵀ))[target]: x (N, C), w (V,
/// C), targets i32 (N) on the host; one number of the compute type. cap 0: none. Works through the
/// rows in chunks of rows_at_once, gradient included, so that the (N, V) logits never exist whole.
Variable linear_cross_entropy(const Variable& x, const Variable& w, const Tensor& targets,
                              double cap = 0, int64_t rows_at_once = 1024);

}  // namespace headroom::autograd
