// A backend whose every kernel is recorded by this thread's Trace, if it has one.
#pragma once

#include <algorithm>

#include "kernels/backend.h"
#include "kernels/trace.h"

namespace headroom::kernels {

class TracedBackend final : public Backend {
 public:
  explicit TracedBackend(Backend& inner) : inner_(inner) {}

  void wait() override { inner_.wait(); }
  void set_arithmetic(const Arithmetic& arithmetic) override { inner_.set_arithmetic(arithmetic); }

  void fill(Tensor& x, double value) override {
    const Waited kernel(inner_, "fill", shape_of(x));
    inner_.fill(x, value);
  }
  void cast(const Tensor& x, Tensor& y) override {
    const Waited kernel(inner_, "cast", shape_of(y));
    inner_.cast(x, y);
  }
  void scale(const Tensor& x, double a, const Into& y) override {
    const Waited kernel(inner_, "scale", shape_of(x, added(y)));
    inner_.scale(x, a, y);
  }
  void add(const Tensor& a, const Tensor& b, Tensor& y) override {
    const Waited kernel(inner_, "add", shape_of(y));
    inner_.add(a, b, y);
  }
  void softcap(const Tensor& x, double cap, Tensor& y) override {
    const Waited kernel(inner_, "softcap", shape_of(x));
    inner_.softcap(x, cap, y);
  }
  void softcap_backward(const Tensor& y, double cap, const Tensor& dy, const Into& dx) override {
    const Waited kernel(inner_, "softcap_backward", shape_of(y, added(dx)));
    inner_.softcap_backward(y, cap, dy, dx);
  }
  void activation(Activation kind, const Tensor& x, Tensor& y) override {
    const Waited kernel(inner_, "activation", shape_of(x));
    inner_.activation(kind, x, y);
  }
  void activation_backward(Activation kind, const Tensor& x, const Tensor& dy,
                           const Into& dx) override {
    const Waited kernel(inner_, "activation_backward", shape_of(x, added(dx)));
    inner_.activation_backward(kind, x, dy, dx);
  }
  void swiglu(const Tensor& gate, const Tensor& up, Tensor& y) override {
    const Waited kernel(inner_, "swiglu", shape_of(y));
    inner_.swiglu(gate, up, y);
  }
  void swiglu_backward(const Tensor& gate, const Tensor& up, const Tensor& dy, const Into& dgate,
                       const Into& dup) override {
    const Waited kernel(inner_, "swiglu_backward", shape_of(dy));
    inner_.swiglu_backward(gate, up, dy, dgate, dup);
  }
  void dropout(const Tensor& x, double p, const RandomStream& stream, int64_t first,
               const Into& y) override {
    const Waited kernel(inner_, "dropout", shape_of(x, added(y)));
    inner_.dropout(x, p, stream, first, y);
  }

  void copy_columns(const Tensor& x, int64_t x_column, const Into& y, int64_t y_column,
                    int64_t width) override {
    const Waited kernel(
        inner_, "copy_columns",
        {.sizes = {x.dim(0), width}, .count = 2, .dtype = x.dtype(), .note = added(y)});
    inner_.copy_columns(x, x_column, y, y_column, width);
  }
  void swap_axes(const Tensor& x, const Into& y) override {
    const Waited kernel(inner_, "swap_axes", shape_of(x, added(y)));
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
    const Waited kernel(inner_, "matmul", operands);
    inner_.matmul(a, ta, b, tb, out);
  }
  void linear(const Tensor& x, std::span<const Weights> w, std::span<Tensor> y) override {
    int64_t outputs = 0;
    for (const Weights& each : w) {
      outputs += each.values.dim(0);
    }
    const Waited kernel(inner_, "linear",
                        {.sizes = {x.dim(0), outputs, x.dim(1)},
                         .count = 3,
                         .dtype = w.empty() ? x.dtype() : w[0].values.dtype()});
    inner_.linear(x, w, y);
  }
  void quantize_rows(const Tensor& x, Weights& q) override {
    const Waited kernel(inner_, "quantize_rows", shape_of(x));
    inner_.quantize_rows(x, q);
  }
  void sum_rows(const Tensor& x, const Into& out) override {
    const Waited kernel(inner_, "sum_rows", shape_of(x, added(out)));
    inner_.sum_rows(x, out);
  }

  void embedding(const Tensor& ids, const Tensor& w, Tensor& y) override {
    const Waited kernel(inner_, "embedding", shape_of(y));
    inner_.embedding(ids, w, y);
  }
  void embedding_backward(const Tensor& ids, const Tensor& dy, const Into& dw) override {
    const Waited kernel(inner_, "embedding_backward", shape_of(dy, added(dw)));
    inner_.embedding_backward(ids, dy, dw);
  }

  void norm(NormKind kind, const Tensor& x, const Tensor& residual, const Tensor& w,
            const Tensor& b, double eps, Tensor& sum, Tensor& y, Tensor& stats) override {
    const Waited kernel(inner_, "norm", shape_of(x));
    inner_.norm(kind, x, residual, w, b, eps, sum, y, stats);
  }
  void norm_backward(NormKind kind, const Tensor& sum, const Tensor& w, const Tensor& stats,
                     const Tensor& dy, const Tensor& dsum, const Into& dx, const Into& dw,
                     const Into& db) override {
    const Waited kernel(inner_, "norm_backward", shape_of(sum, added(dx)));
    inner_.norm_backward(kind, sum, w, stats, dy, dsum, dx, dw, db);
  }

  void rope_table(const Tensor& positions, double base, Tensor& table) override {
    const Waited kernel(inner_, "rope_table", shape_of(table));
    inner_.rope_table(positions, base, table);
  }
  void rope(const Tensor& x, const Tensor& table, RopeStyle style, Direction direction,
            const Into& y) override {
    const Waited kernel(inner_, "rope", shape_of(x, added(y)));
    inner_.rope(x, table, style, direction, y);
  }

  void attention(const AttentionInputs& in, Tensor& out, Tensor& lse) override {
    const Waited kernel(inner_, "attention", sizes_of(in));
    inner_.attention(in, out, lse);
  }
  void attention_backward(const AttentionInputs& in, const Tensor& out, const Tensor& lse,
                          const Tensor& dout, const Into& dq, const Into& dk, const Into& dv,
                          const Into& dsink) override {
    const Waited kernel(inner_, "attention_backward", sizes_of(in));
    inner_.attention_backward(in, out, lse, dout, dq, dk, dv, dsink);
  }

  void store_kv(const Tensor& x, const Tensor& slots, Tensor& to, const KVCode& code) override {
    const Waited kernel(inner_, "store_kv", shape_of(x));
    inner_.store_kv(x, slots, to, code);
  }
  void hadamard(const Tensor& x, Tensor& y) override {
    const Waited kernel(inner_, "hadamard", shape_of(x));
    inner_.hadamard(x, y);
  }

  void cross_entropy(const Tensor& logits, const Tensor& targets, double scale, Tensor& losses,
                     Tensor& dlogits) override {
    const Waited kernel(inner_, "cross_entropy", shape_of(logits));
    inner_.cross_entropy(logits, targets, scale, losses, dlogits);
  }

  void sum(const Tensor& x, double factor, Tensor& total) override {
    const Waited kernel(inner_, "sum", shape_of(x));
    inner_.sum(x, factor, total);
  }

  Largest largest(const Tensor& x) override {
    const Waited kernel(inner_, "largest", shape_of(x));
    return inner_.largest(x);
  }
  void exp_weights(const Tensor& x, double shift, double divisor, Tensor& y) override {
    const Waited kernel(inner_, "exp_weights", shape_of(x));
    inner_.exp_weights(x, shift, divisor, y);
  }
  void keep_likeliest(const Tensor& x, const Narrowing& by, Tensor& w) override {
    const Waited kernel(inner_, "keep_likeliest", shape_of(x));
    inner_.keep_likeliest(x, by, w);
  }
  int32_t draw(const Tensor& w, double share) override {
    const Waited kernel(inner_, "draw", shape_of(w));
    return inner_.draw(w, share);
  }

  void sum_of_squares(std::span<const Tensor> tensors, Tensor& sum) override {
    const Waited kernel(inner_, "sum_of_squares",
                        elements_of(tensors, [](const Tensor& x) { return x; }));
    inner_.sum_of_squares(tensors, sum);
  }
  void clip_scale(const Tensor& sum_of_squares, double count, double max_norm,
                  Tensor& scale) override {
    const Waited kernel(inner_, "clip_scale");
    inner_.clip_scale(sum_of_squares, count, max_norm, scale);
  }
  void adamw(std::span<const AdamWTensors> tensors, const AdamWStep& step) override {
    const Waited kernel(inner_, "adamw",
                        elements_of(tensors, [](const auto& each) { return each.param; }));
    inner_.adamw(tensors, step);
  }
  void muon_directions(std::span<const MuonTensors> matrices, double mu, const Tensor& grad_scale,
                       Tensor& directions) override {
    const Waited kernel(inner_, "muon_directions", shape_of(directions));
    inner_.muon_directions(matrices, mu, grad_scale, directions);
  }
  void unit_matrices(const Tensor& x, double eps, Tensor& y) override {
    const Waited kernel(inner_, "unit_matrices", shape_of(x));
    inner_.unit_matrices(x, eps, y);
  }
  void muon_update(std::span<const MuonTensors> matrices, const Tensor& directions, double keep,
                   double rate, const Tensor& grad_scale) override {
    const Waited kernel(inner_, "muon_update", shape_of(directions));
    inner_.muon_update(matrices, directions, keep, rate, grad_scale);
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
  template <class T, class F>
  static Operands elements_of(std::span<const T> all, const F& tensor) {
    int64_t elements = 0;
    for (const T& each : all) {
      elements += tensor(each).numel();
    }
    return {.sizes = {elements},
            .count = 1,
            .dtype = all.empty() ? DType::f32 : tensor(all[0]).dtype()};
  }
  static Operands sizes_of(const AttentionInputs& in) {
    return {.sizes = {in.q.dim(0), in.q.dim(1), in.q.dim(2), in.q.dim(3), in.kv.k.dim(1)},
            .count = 5,
            .dtype = in.q.dtype(),
            .letters = "BTHDK"};
  }

  /// A kernel is over when the device is done with it.
  class Waited {
   public:
    Waited(Backend& device, const char* name, const Operands& operands = {})
        : kernel_(name, operands), device_(device) {}
    Waited(const Waited&) = delete;
    Waited& operator=(const Waited&) = delete;
    ~Waited() { device_.wait(); }  // NOLINT(bugprone-exception-escape)

   private:
    Kernel kernel_;
    Backend& device_;
  };

  Backend& inner_;
};

}  // namespace headroom::kernels
