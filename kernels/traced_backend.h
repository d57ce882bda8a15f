// A backend whose every kernel is recorded by this thread's Trace, if it has one.
#pragma once

#include <algorithm>

#include "kernels/backend.h"
#include "kernels/trace.h"

namespace headroom::kernels {

class TracedBackend : public Backend {
 public:
  explicit TracedBackend(Backend& inner) : inner_(inner) {}

  void fill(Tensor& x, double value) override {
    const Kernel kernel("fill", shape_of(x));
    inner_.fill(x, value);
  }
  void cast(const Tensor& x, Tensor& y) override {
    const Kernel kernel("cast", shape_of(y));
    inner_.cast(x, y);
  }
  void scale(const Tensor& x, double a, const Into& y) override {
    const Kernel kernel("scale", shape_of(x, added(y)));
    inner_.scale(x, a, y);
  }
  void add(const Tensor& a, const Tensor& b, Tensor& y) override {
    const Kernel kernel("add", shape_of(y));
    inner_.add(a, b, y);
  }
  void softcap(const Tensor& x, double cap, Tensor& y) override {
    const Kernel kernel("softcap", shape_of(x));
    inner_.softcap(x, cap, y);
  }
  void softcap_backward(const Tensor& y, double cap, const Tensor& dy, const Into& dx) override {
    const Kernel kernel("softcap_backward", shape_of(y, added(dx)));
    inner_.softcap_backward(y, cap, dy, dx);
  }
  void activation(Activation kind, const Tensor& x, Tensor& y) override {
    const Kernel kernel("activation", shape_of(x));
    inner_.activation(kind, x, y);
  }
  void activation_backward(Activation kind, const Tensor& x, const Tensor& dy,
                           const Into& dx) override {
    const Kernel kernel("activation_backward", shape_of(x, added(dx)));
    inner_.activation_backward(kind, x, dy, dx);
  }
  void swiglu(const Tensor& gate, const Tensor& up, Tensor& y) override {
    const Kernel kernel("swiglu", shape_of(y));
    inner_.swiglu(gate, up, y);
  }
  void swiglu_backward(const Tensor& gate, const Tensor& up, const Tensor& dy, const Into& dgate,
                       const Into& dup) override {
    const Kernel kernel("swiglu_backward", shape_of(dy));
    inner_.swiglu_backward(gate, up, dy, dgate, dup);
  }
  void dropout(const Tensor& x, double p, const RandomStream& stream, int64_t first,
               const Into& y) override {
    const Kernel kernel("dropout", shape_of(x, added(y)));
    inner_.dropout(x, p, stream, first, y);
  }

  void copy_columns(const Tensor& x, int64_t x_column, const Into& y, int64_t y_column,
                    int64_t width) override {
    const Kernel kernel(
        "copy_columns",
        {.sizes = {x.dim(0), width}, .count = 2, .dtype = x.dtype(), .note = added(y)});
    inner_.copy_columns(x, x_column, y, y_column, width);
  }
  void swap_axes(const Tensor& x, const Into& y) override {
    const Kernel kernel("swap_axes", shape_of(x, added(y)));
    inner_.swap_axes(x, y);
  }

  void matmul(const Tensor& a, Transpose ta, const Tensor& b, Transpose tb,
              const Into& out) override {
    static constexpr const char* kNotes[2][2][2] = {{{"NN", "NN +="}, {"NT", "NT +="}},
                                                    {{"TN", "TN +="}, {"TT", "TT +="}}};
    const bool a_turned = ta == Transpose::yes, b_turned = tb == Transpose::yes;
    const int64_t m = out.tensor.dim(-2), n = out.tensor.dim(-1), k = a.dim(a_turned ? -2 : -1);
    Operands operands{.sizes = {m, n, k},
                      .count = 3,
                      .dtype = a.dtype(),
                      .note = kNotes[a_turned][b_turned][out.add]};
    if (out.tensor.rank() == 3) {
      operands.sizes = {out.tensor.dim(0), m, n, k};
      operands.count = 4;
    }
    const Kernel kernel("matmul", operands);
    inner_.matmul(a, ta, b, tb, out);
  }
  void linear(const Tensor& x, std::span<const Weights> w, std::span<Tensor> y) override {
    int64_t outputs = 0;
    for (const Weights& each : w) {
      outputs += each.values.dim(0);
    }
    const Kernel kernel("linear", {.sizes = {x.dim(0), outputs, x.dim(1)},
                                   .count = 3,
                                   .dtype = w.empty() ? x.dtype() : w[0].values.dtype()});
    inner_.linear(x, w, y);
  }
  void quantize_rows(const Tensor& x, Weights& q) override {
    const Kernel kernel("quantize_rows", shape_of(x));
    inner_.quantize_rows(x, q);
  }
  void add_bias(Tensor& x, const Tensor& bias) override {
    const Kernel kernel("add_bias", shape_of(x));
    inner_.add_bias(x, bias);
  }
  void sum_rows(const Tensor& x, const Into& out) override {
    const Kernel kernel("sum_rows", shape_of(x, added(out)));
    inner_.sum_rows(x, out);
  }

  void embedding(const Tensor& ids, const Tensor& w, Tensor& y) override {
    const Kernel kernel("embedding", shape_of(y));
    inner_.embedding(ids, w, y);
  }
  void embedding_backward(const Tensor& ids, const Tensor& dy, const Into& dw) override {
    const Kernel kernel("embedding_backward", shape_of(dy, added(dw)));
    inner_.embedding_backward(ids, dy, dw);
  }

  void norm(NormKind kind, const Tensor& x, const Tensor& residual, const Tensor& w,
            const Tensor& b, double eps, Tensor& sum, Tensor& y, Tensor& stats) override {
    const Kernel kernel("norm", shape_of(x));
    inner_.norm(kind, x, residual, w, b, eps, sum, y, stats);
  }
  void norm_backward(NormKind kind, const Tensor& sum, const Tensor& w, const Tensor& stats,
                     const Tensor& dy, const Tensor& dsum, const Into& dx, const Into& dw,
                     const Into& db) override {
    const Kernel kernel("norm_backward", shape_of(sum, added(dx)));
    inner_.norm_backward(kind, sum, w, stats, dy, dsum, dx, dw, db);
  }

  void rope_table(const Tensor& positions, double base, Tensor& table) override {
    const Kernel kernel("rope_table", shape_of(table));
    inner_.rope_table(positions, base, table);
  }
  void rope(const Tensor& x, const Tensor& table, RopeStyle style, Direction direction,
            const Into& y) override {
    const Kernel kernel("rope", shape_of(x, added(y)));
    inner_.rope(x, table, style, direction, y);
  }

  void attention(const AttentionInputs& in, Tensor& out, Tensor& lse) override {
    const Kernel kernel("attention", sizes_of(in));
    inner_.attention(in, out, lse);
  }
  void attention_backward(const AttentionInputs& in, const Tensor& out, const Tensor& lse,
                          const Tensor& dout, const Into& dq, const Into& dk, const Into& dv,
                          const Into& dsink) override {
    const Kernel kernel("attention_backward", sizes_of(in));
    inner_.attention_backward(in, out, lse, dout, dq, dk, dv, dsink);
  }

  void store_kv(const Tensor& x, Tensor& to, const KVCode& code, int64_t slot) override {
    const Kernel kernel("store_kv", shape_of(x));
    inner_.store_kv(x, to, code, slot);
  }
  void hadamard(const Tensor& x, Tensor& y) override {
    const Kernel kernel("hadamard", shape_of(x));
    inner_.hadamard(x, y);
  }

  void cross_entropy(const Tensor& logits, const Tensor& targets, double scale, Tensor& losses,
                     Tensor& dlogits) override {
    const Kernel kernel("cross_entropy", shape_of(logits));
    inner_.cross_entropy(logits, targets, scale, losses, dlogits);
  }

  Largest largest(const Tensor& x) override {
    const Kernel kernel("largest", shape_of(x));
    return inner_.largest(x);
  }
  void exp_weights(const Tensor& x, double shift, double divisor, Tensor& y) override {
    const Kernel kernel("exp_weights", shape_of(x));
    inner_.exp_weights(x, shift, divisor, y);
  }

  double sum_of_squares(std::span<const Tensor> tensors) override {
    int64_t elements = 0;
    for (const Tensor& tensor : tensors) {
      elements += tensor.numel();
    }
    const Kernel kernel("sum_of_squares",
                        {.sizes = {elements}, .count = 1, .dtype = tensors[0].dtype()});
    return inner_.sum_of_squares(tensors);
  }
  void adamw(std::span<const AdamWTensors> tensors, const AdamWStep& step) override {
    int64_t elements = 0;
    for (const AdamWTensors& each : tensors) {
      elements += each.param.numel();
    }
    const Kernel kernel("adamw",
                        {.sizes = {elements}, .count = 1, .dtype = tensors[0].param.dtype()});
    inner_.adamw(tensors, step);
  }

 private:
  static const char* added(const Into& out) { return out.add ? "+=" : nullptr; }
  static Operands shape_of(const Tensor& x, const char* note = nullptr) {
    Operands operands{.dtype = x.dtype(), .note = note};
    const auto dims = x.shape().dims();
    operands.count = static_cast<uint8_t>(std::min(dims.size(), Operands::kMost));
    std::copy_n(dims.begin(), operands.count, operands.sizes.begin());
    return operands;
  }
  static Operands sizes_of(const AttentionInputs& in) {
    return {.sizes = {in.q.dim(0), in.q.dim(1), in.q.dim(2), in.q.dim(3), in.kv.k.dim(1)},
            .count = 5,
            .dtype = in.q.dtype(),
            .letters = "BTHDK"};
  }

  Backend& inner_;
};

}  // namespace headroom::kernels
