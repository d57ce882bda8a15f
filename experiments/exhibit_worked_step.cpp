// Exhibit worked-step: one decode step small enough to follow by hand, computed with real tensors.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "experiments/exhibits.h"
#include "experiments/format.h"
#include "experiments/line_chart.h"
#include "experiments/plain_attention.h"
#include "infer/block_cache.h"
#include "kernels/backend.h"

namespace headroom::experiments {
namespace {

constexpr int64_t kHeads = 4, kSize = 64, kEmbd = kHeads * kSize, kCached = 2;

Tensor random(const Shape& shape, const char* name, double sd) {
  Tensor x = Tensor::empty(shape, DType::f32);
  fill_normal(x, RandomStream(1, name), sd);
  return x;
}

/// x (N, in) times the transpose of a matrix (out, in).
Tensor project(const Tensor& x, const Tensor& w) {
  Tensor y = Tensor::empty({x.dim(0), w.dim(0)}, DType::f32);
  kernels::backend(kCpu).matmul(x, kernels::Transpose::no, w, kernels::Transpose::yes,
                                kernels::Into{y});
  return y;
}

double project_flop(const Tensor& x, const Tensor& w) {
  return 2 * static_cast<double>(x.dim(0) * w.numel());
}

struct Step {
  Tensor q, keys, values, scores, out;  // (H, 1, D), (H, S, D) twice, (H, 1, S), (H, 1, D)
  Shape cached;                         // of the keys in the cache: (S, H, D)
  int64_t cache_bytes = 0;
  double projection_flop = 0, scores_flop = 0, sum_flop = 0;
  double difference = 0;  // from the attention kernel
};

/// Two tokens are in the cache; the third arrives.
Step decode_third_token() {
  configs::ModelConfig model;
  model.n_layer = 1;
  model.n_head = model.n_kv_head = kHeads;
  model.n_embd = kEmbd;
  infer::BlockCache cache(model, infer::BlockTable({}, kCached + 1), 1);
  const Tensor x = random({kCached + 1, kEmbd}, "worked x", 1.0);
  const Tensor wq = random({kEmbd, kEmbd}, "worked q", 0.05),
               wk = random({kEmbd, kEmbd}, "worked k", 0.05),
               wv = random({kEmbd, kEmbd}, "worked v", 0.05);
  kernels::KVView view;
  const auto append = [&](int64_t begin, int64_t end) {
    const Shape shape = {1, end - begin, kHeads, kSize};
    view = cache.append(0, project(x.rows(begin, end), wk).reshape(shape),
                        project(x.rows(begin, end), wv).reshape(shape),
                        Tensor::from(std::vector<int32_t>{static_cast<int32_t>(end - begin)}, {1}));
  };
  append(0, kCached);
  append(kCached, kCached + 1);
  const Tensor newest = x.rows(kCached, kCached + 1);
  Step step;
  step.q = project(newest, wq).reshape({kHeads, 1, kSize});
  const Tensor k = view.k.rows(0, kCached + 1), v = view.v.rows(0, kCached + 1);
  step.cached = k.shape();
  step.cache_bytes = cache.bytes();
  step.keys = heads_first(k);
  step.values = heads_first(v);
  const double scale = 1 / std::sqrt(static_cast<double>(kSize));
  step.scores = plain_scores(step.q, step.keys, scale);
  step.out = plain_weighted_sum(step.scores, step.values);
  step.projection_flop = project_flop(newest, wq);
  step.scores_flop = 2 * static_cast<double>(step.scores.numel() * step.keys.dim(2));
  step.sum_flop = 2 * static_cast<double>(step.out.numel() * step.values.dim(1));

  Tensor out = Tensor::empty({1, 1, kHeads, kSize}, DType::f32),
         lse = Tensor::empty({1, 1, kHeads}, DType::f32);
  kernels::backend(kCpu).attention({.q = step.q.reshape({1, 1, kHeads, kSize}),
                                    .q_sink = {},
                                    .kv = view,
                                    .sink_logits = {},
                                    .mask = {},
                                    .scale = scale},
                                   out, lse);
  const auto plain = step.out.to_vector<float>(), kernel = out.to_vector<float>();
  for (size_t i = 0; i < plain.size(); ++i) {
    step.difference = std::max<double>(step.difference, std::abs(plain[i] - kernel[i]));
  }
  return step;
}

std::string by(const std::vector<int64_t>& sizes) {
  return fmt::format("{}", fmt::join(sizes, " x "));
}

std::string flop(double count) { return format_count(static_cast<int64_t>(count)); }

}  // namespace

Exhibit worked_step_exhibit(const Study& study) {
  study.progress(0, 1);
  const Step s = decode_third_token();
  const std::string q = by({s.q.dim(0), s.q.dim(2)}),
                    keys = by({s.cached.dim(0), s.cached.dim(1), s.cached.dim(2)}),
                    scores = by({s.scores.dim(1), s.scores.dim(2)}), x = by({s.q.dim(1), kEmbd});
  Exhibit exhibit;
  exhibit.setting =
      "One layer with 4 heads of 64. Two tokens are in the cache and the third arrives; every "
      "shape "
      "and count is read from the tensors that compute it.";
  exhibit.rows = {
      exhibit_row("Q, " + q, 4 * 64, static_cast<double>(s.q.numel()), "numbers",
                  "used once, never stored"),
      exhibit_row("K, " + keys, 3 * 4 * 64, static_cast<double>(s.keys.numel()), "numbers",
                  "in the cache, the new token's row among them; V is as large"),
      exhibit_row("scores of a head, " + scores, 3, static_cast<double>(s.scores.dim(2)), "numbers",
                  "gone after the softmax"),
      exhibit_row("cache after the step, f32", {}, static_cast<double>(s.cache_bytes), "bytes",
                  "2 * 3 tokens * 4 heads * 64 * 4 bytes"),
      exhibit_row("FLOP of the step's attention", {},
                  4 * s.projection_flop + s.scores_flop + s.sum_flop, "FLOP",
                  "four projections, scores and weighted sum"),
      exhibit_row("largest difference from the attention kernel", {}, s.difference, "",
                  "the plain products against the tiled kernel")};
  exhibit.table = {{"part", "shape", "stored", "FLOP"},
                   {"Q of the new token", q, "no", flop(s.projection_flop)},
                   {"K of the new token", q, "yes", flop(s.projection_flop)},
                   {"V of the new token", q, "yes", flop(s.projection_flop)},
                   {"scores, all heads", by({s.scores.dim(0), s.scores.dim(1), s.scores.dim(2)}),
                    "no", flop(s.scores_flop)},
                   {"sum of V by weight", by({s.out.dim(0), s.out.dim(2)}), "no", flop(s.sum_flop)},
                   {"output projection", x, "no", flop(s.projection_flop)}};
  exhibit.chart = bar_chart({.xlabel = "",
                             .ylabel = "FLOP",
                             .groups = {"Q", "K", "V", "scores", "sum of V", "output"},
                             .series = {{.name = "FLOP",
                                         .points = {{0, s.projection_flop},
                                                    {1, s.projection_flop},
                                                    {2, s.projection_flop},
                                                    {3, s.scores_flop},
                                                    {4, s.sum_flop},
                                                    {5, s.projection_flop}}}},
                             .log_y = true});
  exhibit.caption =
      "FLOP of each part, on a logarithmic axis: at three tokens nearly all of it is projections.";
  exhibit.why =
      "Nothing: these are shapes. The step reads K and V of every token so far and writes one row "
      "of "
      "each; Q serves the newest token only, which is why nobody caches it.";
  return exhibit;
}

}  // namespace headroom::experiments
