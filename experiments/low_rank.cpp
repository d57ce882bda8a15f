// Second moments through a cache that looks, their eigenvectors, and losses through one that
// projects.
#include "experiments/low_rank.h"

#include <Eigen/Eigenvalues>
#include <algorithm>
#include <memory>

#include "experiments/kv_filter.h"
#include "infer/block_cache.h"

namespace headroom::experiments {
namespace {

using Matrix = Eigen::Matrix<double, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;

constexpr auto kPlain = kernels::Transpose::no, kTurned = kernels::Transpose::yes;

/// Nats per token of passages whose keys and values pass through `change` on their way into the
/// cache.
double filtered_loss(const nn::GPT& model, const Passages& passages,
                     const KVFilter::Change& change) {
  double sum = 0;
  for (const auto& ids : passages.ids) {
    KVFilter cache(
        model.config(),
        std::make_unique<infer::BlockCache>(model.config(), infer::BlockTable({}, passages.tokens),
                                            1, DType::f32, model.device()),
        change);
    sum += infer::losses_through(model, cache, ids, infer::kPrefillChunk, DType::f32,
                                 [](int64_t, std::span<const double>) {});
  }
  return sum / static_cast<double>(passages.targets());
}

/// Sum over the rows (N, W) of each one's outer product with itself, added to `sum`.
void add_moments(const Tensor& rows, Matrix& sum) {
  const int64_t W = rows.dim(1);
  Tensor product = Tensor::empty({W, W}, DType::f32);
  kernels::backend(kCpu).matmul(rows, kTurned, rows, kPlain, {product});
  using FloatMatrix = Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
  sum += Eigen::Map<const FloatMatrix>(product.data<float>(), W, W).cast<double>();
}

/// Fills one layer of the basis.
void decompose(const Matrix& moments, KVBasis& basis) {
  const Eigen::SelfAdjointEigenSolver<Matrix> solver(moments);
  check(solver.info() == Eigen::Success, "[low-rank] the eigenvectors did not converge");
  const int64_t W = moments.rows();
  Tensor directions = Tensor::empty({W, W}, DType::f32);
  std::vector<double> energy;
  const double all = std::max(solver.eigenvalues().cwiseMax(0.0).sum(), 1e-300);
  for (int64_t i = 0; i < W; ++i) {
    const int64_t column = W - 1 - i;  // Eigen's rise
    energy.push_back(std::max(solver.eigenvalues()[column], 0.0) / all);
    for (int64_t j = 0; j < W; ++j) {
      directions.data<float>()[i * W + j] = static_cast<float>(solver.eigenvectors()(j, column));
    }
  }
  basis.directions.push_back(directions);
  basis.energy.push_back(std::move(energy));
}

/// rows (N, W) = rows times directions^T times directions, of the first `rank` directions.
void project(Tensor& rows, const Tensor& directions, int64_t rank) {
  const Tensor first = directions.rows(0, rank);
  Tensor coordinates = Tensor::empty({rows.dim(0), rank}, DType::f32);
  kernels::backend(kCpu).matmul(rows, kPlain, first, kTurned, {coordinates});
  kernels::backend(kCpu).matmul(coordinates, kPlain, first, kPlain, {rows});
}

int64_t row_width(const configs::ModelConfig& model) { return 2 * model.kv_dim(); }

double energy_kept(const KVBasis& basis, int64_t rank) {
  double sum = 0;
  for (const auto& layer : basis.energy) {
    for (int64_t i = 0; i < rank; ++i) {
      sum += layer[static_cast<size_t>(i)];
    }
  }
  return sum / static_cast<double>(basis.energy.size());
}

}  // namespace

KVBasis kv_basis(const nn::GPT& model, const Passages& training) {
  const int64_t W = row_width(model.config()), n_layer = model.config().n_layer;
  std::vector<Matrix> moments(static_cast<size_t>(n_layer), Matrix::Zero(W, W));
  filtered_loss(model, training, [&](int64_t layer, Tensor& rows) {
    add_moments(rows, moments[static_cast<size_t>(layer)]);
    return false;
  });
  KVBasis basis;
  for (int64_t layer = 0; layer < n_layer; ++layer) {
    decompose(moments[static_cast<size_t>(layer)], basis);
  }
  return basis;
}

LowRank low_rank(const nn::GPT& model, const Passages& training, const Passages& held_out,
                 const std::vector<int64_t>& ranks, const PartDone& part_done) {
  LowRank result{.width = row_width(model.config()), .full_loss = 0, .ranks = {}};
  for (const int64_t rank : ranks) {
    check_input(rank >= 1 && rank <= result.width,
                "[low-rank] rank {} is none of 1 to {}, the numbers a layer keeps of a token "
                "(2 * n_kv_head {} * head_dim {})",
                rank, result.width, model.config().n_kv_head, model.config().head_dim());
  }
  const auto parts = static_cast<int64_t>(ranks.size()) + 2;
  part_done(0, parts);
  const KVBasis basis = kv_basis(model, training);
  part_done(1, parts);
  result.full_loss = filtered_loss(model, held_out, [](int64_t, Tensor&) { return false; });
  for (const int64_t rank : ranks) {
    part_done(2 + std::ssize(result.ranks), parts);
    const double loss = filtered_loss(model, held_out, [&](int64_t layer, Tensor& rows) {
      project(rows, basis.directions[static_cast<size_t>(layer)], rank);
      return true;
    });
    result.ranks.push_back({rank, energy_kept(basis, rank), loss});
  }
  part_done(parts, parts);
  return result;
}

std::vector<int64_t> usual_ranks(int64_t width) {
  std::vector<int64_t> ranks;
  for (const int64_t divisor : {1, 2, 3, 4, 6, 8, 12, 16}) {
    if (width / divisor >= 1 && (ranks.empty() || width / divisor < ranks.back())) {
      ranks.push_back(width / divisor);
    }
  }
  return ranks;
}

RankCost rank_cost(const configs::ModelConfig& model, int64_t rank) {
  const int64_t L = model.n_layer, W = row_width(model), H = model.n_head, D = model.head_dim();
  constexpr int64_t kFloat = sizeof(float);
  return {.cache_bytes = L * rank * kFloat,
          .basis_bytes = L * W * rank * kFloat,
          .flop_full = L * 4 * H * D,
          .flop_rebuilt = L * (2 * rank * W + 4 * H * D),
          .flop_absorbed = L * 4 * H * rank};
}

}  // namespace headroom::experiments
