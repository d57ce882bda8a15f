// A backend whose every kernel is seen by what watches this thread: its Trace, if it has one, and a
// recording under way.
#pragma once

#include <algorithm>

#include "kernels/backend.h"
#include "kernels/call_recording.h"
#include "kernels/trace.h"

namespace headroom::kernels {

class WatchedBackend final : public Backend {
 public:
  WatchedBackend(Backend& inner, Device device) : inner_(inner), device_(device) {}

  void wait() override { inner_.wait(); }
  /// As calls, whatever the device: of a graph that a GPU repeats no kernel could be timed.
  std::unique_ptr<Recording> record(const std::function<void()>& step) override {
    return std::make_unique<CallRecording>(device_, step);
  }
  void set_arithmetic(const Arithmetic& arithmetic) override { inner_.set_arithmetic(arithmetic); }

  void fill(Tensor& x, double value) override {
    run(&Backend::fill, "fill", shape_of(x), x, value);
  }
  void cast(const Tensor& x, Tensor& y) override { run(&Backend::cast, "cast", shape_of(y), x, y); }
  void scale(const Tensor& x, double a, const Into& y) override {
    run(&Backend::scale, "scale", shape_of(x, added(y)), x, a, y);
  }
  void add(const Tensor& a, const Tensor& b, Tensor& y) override {
    run(&Backend::add, "add", shape_of(y), a, b, y);
  }
  void softcap(const Tensor& x, double cap, Tensor& y) override {
    run(&Backend::softcap, "softcap", shape_of(x), x, cap, y);
  }
  void softcap_backward(const Tensor& y, double cap, const Tensor& dy, const Into& dx) override {
    run(&Backend::softcap_backward, "softcap_backward", shape_of(y, added(dx)), y, cap, dy, dx);
  }
  void activation(Activation kind, const Tensor& x, Tensor& y) override {
    run(&Backend::activation, "activation", shape_of(x), kind, x, y);
  }
  void activation_backward(Activation kind, const Tensor& x, const Tensor& dy,
                           const Into& dx) override {
    run(&Backend::activation_backward, "activation_backward", shape_of(x, added(dx)), kind, x, dy,
        dx);
  }
  void swiglu(const Tensor& gate, const Tensor& up, Tensor& y) override {
    run(&Backend::swiglu, "swiglu", shape_of(y), gate, up, y);
  }
  void swiglu_backward(const Tensor& gate, const Tensor& up, const Tensor& dy, const Into& dgate,
                       const Into& dup) override {
    run(&Backend::swiglu_backward, "swiglu_backward", shape_of(dy), gate, up, dy, dgate, dup);
  }
  void dropout(const Tensor& x, double p, const RandomStream& stream, int64_t first,
               const Into& y) override {
    run(&Backend::dropout, "dropout", shape_of(x, added(y)), x, p, stream, first, y);
  }

  void copy_columns(const Tensor& x, int64_t x_column, const Into& y, int64_t y_column,
                    int64_t width) override {
    run(&Backend::copy_columns, "copy_columns",
        {.sizes = {x.dim(0), width}, .count = 2, .dtype = x.dtype(), .note = added(y)}, x, x_column,
        y, y_column, width);
  }
  void swap_axes(const Tensor& x, const Into& y) override {
    run(&Backend::swap_axes, "swap_axes", shape_of(x, added(y)), x, y);
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
    run(&Backend::matmul, "matmul", operands, a, ta, b, tb, out);
  }
  void linear(const Tensor& x, std::span<const Weights> w, std::span<Tensor> y) override {
    int64_t outputs = 0;
    for (const Weights& each : w) {
      outputs += each.values.dim(0);
    }
    run(&Backend::linear, "linear",
        {.sizes = {x.dim(0), outputs, x.dim(1)},
         .count = 3,
         .dtype = w.empty() ? x.dtype() : w[0].values.dtype()},
        x, w, y);
  }
  void quantize_rows(const Tensor& x, Weights& q) override {
    run(&Backend::quantize_rows, "quantize_rows", shape_of(x), x, q);
  }
  void sum_rows(const Tensor& x, const Into& out) override {
    run(&Backend::sum_rows, "sum_rows", shape_of(x, added(out)), x, out);
  }

  void embedding(const Tensor& ids, const Tensor& w, Tensor& y) override {
    run(&Backend::embedding, "embedding", shape_of(y), ids, w, y);
  }
  void embedding_backward(const Tensor& ids, const Tensor& dy, const Into& dw) override {
    run(&Backend::embedding_backward, "embedding_backward", shape_of(dy, added(dw)), ids, dy, dw);
  }

  void norm(NormKind kind, const Tensor& x, const Tensor& residual, const Tensor& w,
            const Tensor& b, double eps, Tensor& sum, Tensor& y, Tensor& stats) override {
    run(&Backend::norm, "norm", shape_of(x), kind, x, residual, w, b, eps, sum, y, stats);
  }
  void norm_backward(NormKind kind, const Tensor& sum, const Tensor& w, const Tensor& stats,
                     const Tensor& dy, const Tensor& dsum, const Into& dx, const Into& dw,
                     const Into& db) override {
    run(&Backend::norm_backward, "norm_backward", shape_of(sum, added(dx)), kind, sum, w, stats, dy,
        dsum, dx, dw, db);
  }

  void rope_table(const Tensor& positions, double base, Tensor& table) override {
    run(&Backend::rope_table, "rope_table", shape_of(table), positions, base, table);
  }
  void rope(const Tensor& x, const Tensor& table, RopeStyle style, Direction direction,
            const Into& y) override {
    run(&Backend::rope, "rope", shape_of(x, added(y)), x, table, style, direction, y);
  }

  void attention(const AttentionInputs& in, Tensor& out, Tensor& lse) override {
    run(&Backend::attention, "attention", sizes_of(in), in, out, lse);
  }
  void attention_backward(const AttentionInputs& in, const Tensor& out, const Tensor& lse,
                          const Tensor& dout, const Into& dq, const Into& dk, const Into& dv,
                          const Into& dsink) override {
    run(&Backend::attention_backward, "attention_backward", sizes_of(in), in, out, lse, dout, dq,
        dk, dv, dsink);
  }

  void store_kv(const Tensor& x, const Tensor& slots, Tensor& to, const KVCode& code) override {
    run(&Backend::store_kv, "store_kv", shape_of(x), x, slots, to, code);
  }
  void hadamard(const Tensor& x, Tensor& y) override {
    run(&Backend::hadamard, "hadamard", shape_of(x), x, y);
  }

  void cross_entropy(const Tensor& logits, const Tensor& targets, double scale, Tensor& losses,
                     Tensor& dlogits) override {
    run(&Backend::cross_entropy, "cross_entropy", shape_of(logits), logits, targets, scale, losses,
        dlogits);
  }

  void sum(const Tensor& x, double factor, Tensor& total) override {
    run(&Backend::sum, "sum", shape_of(x), x, factor, total);
  }

  Largest largest(const Tensor& x) override {
    return answer(&Backend::largest, "largest", shape_of(x), x);
  }
  void exp_weights(const Tensor& x, double shift, double divisor, Tensor& y) override {
    run(&Backend::exp_weights, "exp_weights", shape_of(x), x, shift, divisor, y);
  }
  void keep_likeliest(const Tensor& x, const Narrowing& by, Tensor& w) override {
    run(&Backend::keep_likeliest, "keep_likeliest", shape_of(x), x, by, w);
  }
  int32_t draw(const Tensor& w, double share) override {
    return answer(&Backend::draw, "draw", shape_of(w), w, share);
  }

  void sum_of_squares(std::span<const Tensor> tensors, Tensor& sum) override {
    run(&Backend::sum_of_squares, "sum_of_squares",
        elements_of(tensors, [](const Tensor& x) { return x; }), tensors, sum);
  }
  void clip_scale(const Tensor& sum_of_squares, double count, double max_norm,
                  Tensor& scale) override {
    run(&Backend::clip_scale, "clip_scale", {}, sum_of_squares, count, max_norm, scale);
  }
  void adamw(std::span<const AdamWTensors> tensors, const AdamWStep& step) override {
    run(&Backend::adamw, "adamw", elements_of(tensors, [](const auto& each) { return each.param; }),
        tensors, step);
  }
  void muon_directions(std::span<const MuonTensors> matrices, double mu, const Tensor& grad_scale,
                       Tensor& directions) override {
    run(&Backend::muon_directions, "muon_directions", shape_of(directions), matrices, mu,
        grad_scale, directions);
  }
  void unit_matrices(const Tensor& x, double eps, Tensor& y) override {
    run(&Backend::unit_matrices, "unit_matrices", shape_of(x), x, eps, y);
  }
  void muon_update(std::span<const MuonTensors> matrices, const Tensor& directions, double keep,
                   double rate, const Tensor& grad_scale) override {
    run(&Backend::muon_update, "muon_update", shape_of(directions), matrices, directions, keep,
        rate, grad_scale);
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
  template <class... P, class... A>
  void run(void (Backend::*kernel)(P...), const char* name, const Operands& operands, A&&... args) {
    if (CallRecording* recording = CallRecording::current(); recording != nullptr) {
      recording->keep(kernel, args...);
    }
    const CallRecording::InsideKernel inside;
    const Kernel timed(name, operands);
    (inner_.*kernel)(std::forward<A>(args)...);
    inner_.wait();
  }
  /// A kernel that tells the host a number, which a replay could not.
  template <class R, class... P, class... A>
  R answer(R (Backend::*kernel)(P...), const char* name, const Operands& operands, A&&... args) {
    check(CallRecording::current() == nullptr,
          "[record] a step that is recorded can't ask for {}: a replay would not", name);
    const Kernel timed(name, operands);
    const R answered = (inner_.*kernel)(std::forward<A>(args)...);
    inner_.wait();
    return answered;
  }

  Backend& inner_;
  Device device_;
};

}  // namespace headroom::kernels
