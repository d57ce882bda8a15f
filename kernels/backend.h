// Everything a device must be able to compute. Kernels fill the outputs they are given, allocate no
// result and know no gradients; whoever calls them has checked the shapes.
//
// Letters in shapes: B sequences, T new tokens per sequence, N rows (B * T), C width, H query
// heads, K key/value heads, D head size (Dk of keys, Dv of values), V vocabulary.
//
// Types: activations are f64, f32 or bf16. "Compute type" is f64 for f64 and f32 otherwise; weights
// and biases of norms, statistics, rope tables and losses are of the compute type. Indices are i32.
//
// Gradients: outputs named d* are overwritten, or added to where the `Into` says so. Undefined
// tensors are optional arguments that are absent.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "tensor/rng.h"
#include "tensor/tensor.h"

namespace headroom::kernels {

/// An output and whether the kernel adds to what it holds (true) or overwrites it (false).
struct Into {
  Tensor tensor;
  bool add = false;
  bool wanted() const { return tensor.defined(); }
  template <class T>
  T* data() const {
    return Tensor(tensor).data<T>();
  }
};

enum class Transpose : uint8_t { no, yes };
enum class NormKind : uint8_t { layer_norm, rms_norm };
enum class Activation : uint8_t { gelu_tanh, gelu_erf, relu_squared };
enum class RopeStyle : uint8_t { half, interleaved };
enum class Direction : uint8_t { forward, backward };

/// A matrix W (out, in) to multiply with, and what is added to its products.
struct Weights {
  Tensor values;     // (out, in): f64, f32, bf16 or i8
  Tensor scales;     // (out), f32, with i8 only: W[o] = values[o] * scales[o]
  Tensor bias = {};  // (out), of the result's type, or absent
};

/// How the vectors of a cache are coded in bytes: each group of 32 numbers as integers q of 8 or 4
/// bits and one scale s, a number being s * q. The scale is max |x| / 127 (or 7) rounded up to
/// bf16, so that no number is clipped; a group of zeros has s = 0.
struct KVCode {
  static constexpr int64_t kGroup = 32;
  Tensor scales;     // bf16 (slots, K, ceil(D / 32)); absent: the numbers are simply elements
  int64_t bits = 8;  // of q: 8, or 4 with the even one of two in a byte's lower half
};

/// What the host knows of a KVView's tables: every sequence has `length` positions, position p of
/// sequence b is in slot b * step + p, and all the query rows are real. Length 0: it knows nothing.
struct DenseKeys {
  int64_t length = 0, step = 0;
};

/// Keys and values as attention finds them: for every sequence a table of blocks of consecutive
/// positions, so that ragged batches, windows and shared prefixes are the ordinary case.
struct KVView {
  static constexpr int64_t kBlock = 64;  // positions per block

  /// (slots, K, Dk) of f64, f32, bf16 or f16, whatever type the queries have; or i8 (slots, K,
  /// bytes), coded.
  Tensor k;
  /// (slots, K, Dv), likewise; or absent: the values are the first value_size numbers of the keys
  /// (the latent of DeepSeek-V2, arXiv 2405.04434, section 2.1).
  Tensor v;
  /// i32 (B, blocks): the slot of each block's first position.
  Tensor slots;
  /// i32 (B, blocks): that position, a multiple of kBlock, ascending; -1 ends the row.
  Tensor starts;
  /// i32 (B): positions written, the new ones included. A block holds the positions from its start
  /// to min(start + kBlock, length) - 1.
  Tensor lengths;
  /// i32 (B): how many of the T query rows are real; they are the last `counts` positions.
  Tensor counts;
  KVCode k_code = {}, v_code = {};
  int64_t value_size = 0;  // Dv where v is coded or absent
  DenseKeys dense = {};    // says no more than the tables do

  int64_t width_of_values() const { return value_size != 0 ? value_size : v.dim(2); }
};

/// Which keys a query sees. The query at position p sees key j when j <= p and (window == 0 or j >
/// p - window or j < sinks).
struct AttentionMask {
  int64_t window = 0;  // own position included; 0: all
  int64_t sinks = 0;
};

struct AttentionInputs {
  Tensor q;  // (B, T, H, Dk)
  /// (B, T, H, Dk) or absent: the queries as the sink keys (j < sinks) are to see them.
  Tensor q_sink;
  KVView kv;
  /// (H), compute type, or absent: one more logit in each softmax, with no value (gpt-oss).
  Tensor sink_logits;
  AttentionMask mask;
  double scale = 1.0;
};

/// One parameter as an optimizer sees it; all tensors have the parameter's shape and compute type.
struct AdamWTensors {
  Tensor param, grad, m, v;
  double weight_decay = 0;
};
struct AdamWStep {
  double lr, beta1, beta2, eps;
  int64_t step;       // from 1, for the bias corrections
  Tensor grad_scale;  // as clip_scale() leaves it
};

/// One matrix as Muon sees it (train/optimizer.h); all tensors have its shape and compute type.
struct MuonTensors {
  Tensor param, grad, momentum;
};

/// The largest of some numbers.
struct Largest {
  int64_t index = -1;  // the lowest, if several are as large; -1: some number is NaN or +inf, or
                       // none is finite
  double value = 0;
  double log_sum = 0;  // the logarithm of the sum of exp(number) over all
};

/// What narrows the choice of a token, one after another, each what the one before left; none
/// leaves less than one token.
struct Narrowing {
  int64_t top_k = 0;  // the k largest logits; among equal ones those of the lowest ids; 0: all
  double top_p =
      1;  // the fewest of the likeliest whose weights reach this share of the sum; 1: all
  double min_p = 0;  // those of at least this weight
};

/// What a GPU's libraries are free to do. A processor's kernels know one way.
struct Arithmetic {
  bool deterministic = true;  // equal calls on equal hardware give equal bits
  bool tf32 = false;  // products of f32 matrices round their factors to TF32: 10 bits of mantissa
};

/// Kernels that a device runs again when told to, without being asked for each.
class Recording {
 public:
  virtual ~Recording() = default;
  virtual void replay() = 0;
};

class Backend {
 public:
  virtual ~Backend() = default;

  /// Returns when the device has done all that was asked of it. A GPU goes on by itself after a
  /// kernel is asked for; what is copied from it is waited for without this.
  virtual void wait() = 0;
  /// Runs `step` and keeps what it asked of the device, memory for its results included: replays
  /// read and write the same addresses. So `step` gets nothing from the host and waits for nothing,
  /// and what it reads stays where it is for as long as the recording lives.
  virtual std::unique_ptr<Recording> record(const std::function<void()>& step) = 0;

  /// Until it is called, Arithmetic() holds.
  virtual void set_arithmetic(const Arithmetic& /*arithmetic*/) {}

  // --- elementwise ---
  virtual void fill(Tensor& x, double value) = 0;
  /// y = x in y's type. Floating types only; narrowing rounds to nearest even.
  virtual void cast(const Tensor& x, Tensor& y) = 0;
  /// y (+)= a * x, all of one type.
  virtual void scale(const Tensor& x, double a, const Into& y) = 0;
  /// y = a + b.
  virtual void add(const Tensor& a, const Tensor& b, Tensor& y) = 0;
  /// y = cap * tanh(x / cap), and dx (+)= dy * (1 - (y / cap)^2).
  virtual void softcap(const Tensor& x, double cap, Tensor& y) = 0;
  virtual void softcap_backward(const Tensor& y, double cap, const Tensor& dy, const Into& dx) = 0;
  /// y = f(x).
  virtual void activation(Activation kind, const Tensor& x, Tensor& y) = 0;
  virtual void activation_backward(Activation kind, const Tensor& x, const Tensor& dy,
                                   const Into& dx) = 0;
  /// y = silu(gate) * up (Shazeer 2020, arXiv 2002.05202).
  virtual void swiglu(const Tensor& gate, const Tensor& up, Tensor& y) = 0;
  virtual void swiglu_backward(const Tensor& gate, const Tensor& up, const Tensor& dy,
                               const Into& dgate, const Into& dup) = 0;
  /// y (+)= x with each element kept with probability 1 - p and divided by it, or set to 0. Element
  /// i is decided by the (first + i)-th number of the stream: the same call on dy is the backward
  /// pass.
  virtual void dropout(const Tensor& x, double p, const RandomStream& stream, int64_t first,
                       const Into& y) = 0;

  // --- moving numbers ---
  /// The columns from y_column on of y (N, Cy) (+)= `width` columns of x (N, Cx) from x_column on.
  virtual void copy_columns(const Tensor& x, int64_t x_column, const Into& y, int64_t y_column,
                            int64_t width) = 0;
  /// y (B, A, C) (+)= x (A, B, C): the first two axes change places.
  virtual void swap_axes(const Tensor& x, const Into& y) = 0;

  // --- products ---
  /// out (+)= op(a) op(b) for matrices: op(a) is (M, K), op(b) is (K, N), out is (M, N); or for
  /// stacks of equally many of them, each with one more axis in front. a and b are of one type; out
  /// is that type, or f32 for bf16 operands. Sums are in the compute type.
  virtual void matmul(const Tensor& a, Transpose ta, const Tensor& b, Transpose tb,
                      const Into& out) = 0;
  /// y[i] (N, out) = x (N, in) times the transpose of w[i] (out, in), plus its bias, for each i,
  /// with sums in the compute type; in is not 0. Types: w in f64 for x in f64, otherwise f32, bf16
  /// or i8; y is of x's type or f32. One sweep over the weights where N is so small that reading
  /// them is what takes the time.
  virtual void linear(const Tensor& x, std::span<const Weights> w, std::span<Tensor> y) = 0;
  /// The rows of x (N, C), f32, in i8: scales (N), f32, is max |row| / 127, values (N, C) is row /
  /// scale rounded to nearest even; both 0 for a row of zeros.
  virtual void quantize_rows(const Tensor& x, Weights& q) = 0;
  /// out (C) (+)= sum over rows of x (N, C).
  virtual void sum_rows(const Tensor& x, const Into& out) = 0;

  // --- embedding ---
  /// y (N, C) = w[ids]; w (V, C) in the compute type, y in the activation type; ids i32 (N).
  virtual void embedding(const Tensor& ids, const Tensor& w, Tensor& y) = 0;
  virtual void embedding_backward(const Tensor& ids, const Tensor& dy, const Into& dw) = 0;

  // --- normalisation ---
  /// sum = x + residual (when there is one; else sum is x and not written), y = norm(sum) * w + b
  /// over the last axis. stats (N, 2) receives mean and 1 / sd of each row (rms_norm: 0 and 1 /
  /// rms). w is absent or (C), b likewise.
  virtual void norm(NormKind kind, const Tensor& x, const Tensor& residual, const Tensor& w,
                    const Tensor& b, double eps, Tensor& sum, Tensor& y, Tensor& stats) = 0;
  /// dx (+)= gradient through the norm of dy, plus dsum when there is one. dw, db optional.
  virtual void norm_backward(NormKind kind, const Tensor& sum, const Tensor& w, const Tensor& stats,
                             const Tensor& dy, const Tensor& dsum, const Into& dx, const Into& dw,
                             const Into& db) = 0;

  // --- positions (RoFormer, arXiv 2104.09864) ---
  /// table (R, D/2, 2) = cos and sin of positions[r] * base^(-2i/D), computed in f64 and rounded
  /// once.
  virtual void rope_table(const Tensor& positions, double base, Tensor& table) = 0;
  /// Rotates the D numbers of each head of x (N, heads, D) by row (n mod R) of the table; backward
  /// rotates back.
  virtual void rope(const Tensor& x, const Tensor& table, RopeStyle style, Direction direction,
                    const Into& y) = 0;

  // --- attention (online softmax in tiles: FlashAttention, arXiv 2205.14135) ---
  /// out (B, T, H, Dv), lse (B, T, H) in the compute type: log-sum-exp of the visible scores (and
  /// the sink logit). Query head h reads KV head h / (H / K). Rows beyond counts[b] are set to
  /// zero, their lse too.
  virtual void attention(const AttentionInputs& in, Tensor& out, Tensor& lse) = 0;
  /// dq like q, dk like kv.k, dv like kv.v, dsink (H). For inputs without q_sink, and keys and
  /// values of q's type.
  virtual void attention_backward(const AttentionInputs& in, const Tensor& out, const Tensor& lse,
                                  const Tensor& dout, const Into& dq, const Into& dk,
                                  const Into& dv, const Into& dsink) = 0;

  // --- storing keys and values ---
  /// Slot slots[i] of `to` (slots, K, D, or bytes) = row i of x (n, K, D), rounded to nearest even,
  /// or coded; slots i32 (n), none twice, -1 where a row is kept nowhere. On a processor x may be
  /// of any type that `to` is of too.
  virtual void store_kv(const Tensor& x, const Tensor& slots, Tensor& to, const KVCode& code) = 0;
  /// y = each row of x (..., D) times the Hadamard matrix of the largest power of two that divides
  /// D, block by block, over the square root of its size: its own inverse, and it leaves products
  /// of two such rows as they were.
  virtual void hadamard(const Tensor& x, Tensor& y) = 0;

  // --- loss ---
  /// losses (N) = -log softmax(logits)[target], 0 where target is -1; logits (N, V) in the compute
  /// type. If dlogits is defined it receives scale * (softmax - onehot), 0 for ignored rows; it may
  /// be logits itself.
  virtual void cross_entropy(const Tensor& logits, const Tensor& targets, double scale,
                             Tensor& losses, Tensor& dlogits) = 0;
  /// total () = factor * the sum of x, both of the compute type; summed in f64, in an order that
  /// depends only on the shape.
  virtual void sum(const Tensor& x, double factor, Tensor& total) = 0;

  // --- choosing tokens ---
  /// The largest of x (V), of the compute type.
  virtual Largest largest(const Tensor& x) = 0;
  /// y (V) = exp((x - shift) / divisor) for x up to the shift, both of the compute type.
  virtual void exp_weights(const Tensor& x, double shift, double divisor, Tensor& y) = 0;
  /// w (V), the weights of tokens whose logits are x (V), becomes 0 where the choice is narrowed;
  /// both of the compute type. The largest weight is 1.
  virtual void keep_likeliest(const Tensor& x, const Narrowing& by, Tensor& w) = 0;
  /// The first index at which the sum of w (V), of the compute type, passes `share` of all of it;
  /// -1 where rounding has used up the last.
  virtual int32_t draw(const Tensor& w, double share) = 0;

  // --- optimizers ---
  // What gradients amount to stays on the device: no update waits for the host to have read it.
  /// sum (), f64 = the sum of squares over all tensors, in an order that depends only on the
  /// shapes.
  virtual void sum_of_squares(std::span<const Tensor> tensors, Tensor& sum) = 0;
  /// scale (), f64 = what gradients that are sums over `count` batches are to be multiplied by,
  /// their sum of squares being given: the mean of the batches, clipped to a norm of max_norm by
  /// min(1, max_norm / (norm + 1e-6)), PyTorch's rule; max_norm 0: not clipped. NaN when the sum is
  /// not finite, and then the kernels below leave everything as it is.
  virtual void clip_scale(const Tensor& sum_of_squares, double count, double max_norm,
                          Tensor& scale) = 0;
  /// AdamW with decoupled decay (Loshchilov and Hutter, arXiv 1711.05101), all tensors in one
  /// sweep.
  virtual void adamw(std::span<const AdamWTensors> tensors, const AdamWStep& step) = 0;
  /// momentum = mu momentum + g and directions[i] = g + mu momentum (Nesterov's), for g =
  /// grad_scale grad; directions (matrices, rows, columns).
  virtual void muon_directions(std::span<const MuonTensors> matrices, double mu,
                               const Tensor& grad_scale, Tensor& directions) = 0;
  /// y[i] = x[i] / (|x[i]| + eps), the Frobenius norm, for x and y (matrices, rows, columns).
  virtual void unit_matrices(const Tensor& x, double eps, Tensor& y) = 0;
  /// param = keep param - rate directions[i].
  virtual void muon_update(std::span<const MuonTensors> matrices, const Tensor& directions,
                           double keep, double rate, const Tensor& grad_scale) = 0;
};

/// The backend of a device. Throws InputError when this build has none for it, or this machine no
/// such device.
Backend& backend(Device device);
/// A line for each backend of this build: its name, and the libraries it computes with.
std::vector<std::string> backend_versions();

}  // namespace headroom::kernels
