// Kernels over the rows of a matrix on a GPU: what CudaBackend's functions of these names do.
#pragma once

#include "kernels/backend.h"

namespace headroom::kernels::cuda {

void copy_columns(const Tensor& x, int64_t x_column, const Into& y, int64_t y_column,
                  int64_t width);
void swap_axes(const Tensor& x, const Into& y);
void add_bias(Tensor& x, const Tensor& bias);
void sum_rows(const Tensor& x, const Into& out);
void embedding(const Tensor& ids, const Tensor& w, Tensor& y);
void embedding_backward(const Tensor& ids, const Tensor& dy, const Into& dw);
void norm(NormKind kind, const Tensor& x, const Tensor& residual, const Tensor& w, const Tensor& b,
          double eps, Tensor& sum, Tensor& y, Tensor& stats);
void norm_backward(NormKind kind, const Tensor& sum, const Tensor& w, const Tensor& stats,
                   const Tensor& dy, const Tensor& dsum, const Into& dx, const Into& dw,
                   const Into& db);
void quantize_rows(const Tensor& x, Weights& q);
void hadamard(const Tensor& x, Tensor& y);
void rope_table(const Tensor& positions, double base, Tensor& table);
void rope(const Tensor& x, const Tensor& table, RopeStyle style, Direction direction,
          const Into& y);
void cross_entropy(const Tensor& logits, const Tensor& targets, double scale, Tensor& losses,
                   Tensor& dlogits);

}  // namespace headroom::kernels::cuda
