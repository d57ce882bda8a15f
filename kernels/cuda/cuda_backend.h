// A GPU's backend, the first one's of this process. Each family of kernels is a file of its name
// beside this one.
#pragma once

#include "kernels/backend.h"

namespace headroom::kernels::cuda {

/// Everything runs in the order of one stream; calls return before it has.
class CudaBackend final : public Backend {
 public:
  // elementwise.cu
  void fill(Tensor& x, double value) override;
  void cast(const Tensor& x, Tensor& y) override;
  void scale(const Tensor& x, double a, const Into& y) override;
  void add(const Tensor& a, const Tensor& b, Tensor& y) override;
  void softcap(const Tensor& x, double cap, Tensor& y) override;
  void softcap_backward(const Tensor& y, double cap, const Tensor& dy, const Into& dx) override;
  void dropout(const Tensor& x, double p, const RandomStream& stream, int64_t first,
               const Into& y) override;
  void activation(Activation kind, const Tensor& x, Tensor& y) override;
  void activation_backward(Activation kind, const Tensor& x, const Tensor& dy,
                           const Into& dx) override;
  void swiglu(const Tensor& gate, const Tensor& up, Tensor& y) override;
  void swiglu_backward(const Tensor& gate, const Tensor& up, const Tensor& dy, const Into& dgate,
                       const Into& dup) override;

  // move.cu
  void copy_columns(const Tensor& x, int64_t x_column, const Into& y, int64_t y_column,
                    int64_t width) override;
  void swap_axes(const Tensor& x, const Into& y) override;

  // matmul.cpp
  void matmul(const Tensor& a, Transpose ta, const Tensor& b, Transpose tb,
              const Into& out) override;
  void linear(const Tensor& x, std::span<const Weights> w, std::span<Tensor> y) override;

  // quantize.cu
  void quantize_rows(const Tensor& x, Weights& q) override;
  void hadamard(const Tensor& x, Tensor& y) override;

  // embedding.cu
  void embedding(const Tensor& ids, const Tensor& w, Tensor& y) override;
  void embedding_backward(const Tensor& ids, const Tensor& dy, const Into& dw) override;

  // norm.cu
  void norm(NormKind kind, const Tensor& x, const Tensor& residual, const Tensor& w,
            const Tensor& b, double eps, Tensor& sum, Tensor& y, Tensor& stats) override;
  void norm_backward(NormKind kind, const Tensor& sum, const Tensor& w, const Tensor& stats,
                     const Tensor& dy, const Tensor& dsum, const Into& dx, const Into& dw,
                     const Into& db) override;
  void sum_rows(const Tensor& x, const Into& out) override;

  // rope.cu
  void rope_table(const Tensor& positions, double base, Tensor& table) override;
  void rope(const Tensor& x, const Tensor& table, RopeStyle style, Direction direction,
            const Into& y) override;

  // attention.cu, attention_backward.cu
  void attention(const AttentionInputs& in, Tensor& out, Tensor& lse) override;
  void attention_backward(const AttentionInputs& in, const Tensor& out, const Tensor& lse,
                          const Tensor& dout, const Into& dq, const Into& dk, const Into& dv,
                          const Into& dsink) override;

  // store_kv.cu
  void store_kv(const Tensor& x, const Tensor& slots, Tensor& to, const KVCode& code) override;

  // loss.cu
  void cross_entropy(const Tensor& logits, const Tensor& targets, double scale, Tensor& losses,
                     Tensor& dlogits) override;
  void sum(const Tensor& x, double factor, Tensor& total) override;

  // sampling.cu
  Largest largest(const Tensor& x) override;
  void exp_weights(const Tensor& x, double shift, double divisor, Tensor& y) override;
  void keep_likeliest(const Tensor& x, const Narrowing& by, Tensor& w) override;
  int32_t draw(const Tensor& w, double share) override;

  // optimizer.cu
  void sum_of_squares(std::span<const Tensor> tensors, Tensor& sum) override;
  void clip_scale(const Tensor& sum_of_squares, double count, double max_norm,
                  Tensor& scale) override;
  void adamw(std::span<const AdamWTensors> tensors, const AdamWStep& step) override;
  void muon_directions(std::span<const MuonTensors> matrices, double mu, const Tensor& grad_scale,
                       Tensor& directions) override;
  void unit_matrices(const Tensor& x, double eps, Tensor& y) override;
  void muon_update(std::span<const MuonTensors> matrices, const Tensor& directions, double keep,
                   double rate, const Tensor& grad_scale) override;

  // cuda_backend.cpp
  void wait() override;
  void set_arithmetic(const Arithmetic& arithmetic) override { arithmetic_ = arithmetic; }

  // recording.cpp
  std::unique_ptr<Recording> record(const std::function<void()>& step) override;

 private:
  /// matmul(), with a bias (N) of out's type added to each row where there is one: of matrices, not
  /// of stacks.
  void multiply(const Tensor& a, Transpose ta, const Tensor& b, Transpose tb, const Tensor& bias,
                const Into& out);

  Arithmetic arithmetic_;
};

}  // namespace headroom::kernels::cuda
