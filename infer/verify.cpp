// Comparing cached logits with uncached ones, and both with float64.
#include "infer/verify.h"

#include <algorithm>
#include <cmath>

#include "infer/block_cache.h"
#include "kernels/trace.h"

namespace headroom::infer {

namespace {

/// All logits of the sequences, one after the other, V for each token.
using Logits = std::vector<double>;

/// Collects the hidden rows of a pass, and computes the head once they are all there.
class AllRows {
 public:
  AllRows(const nn::GPT& model, const Sequences& sequences) : model_(model) {
    int64_t rows = 0;
    for (const auto& sequence : sequences) {
      begins_.push_back(rows);
      rows += static_cast<int64_t>(sequence.size());
    }
    hidden_ = Tensor::zeros({rows, model.config().n_embd}, model.dtype(), model.device());
  }
  /// The rows it is handed begin `before` tokens later than it is told.
  OnHidden collector(int64_t before = 0) {
    return [this, before](int64_t sequence, int64_t first, const Tensor& rows) {
      const int64_t begin = begins_[static_cast<size_t>(sequence)] + before + first;
      hidden_.rows(begin, begin + rows.dim(0)).copy_from(rows);
    };
  }
  Logits logits() const {
    const autograd::NoGrad no_grad;
    return to_doubles(model_.head(nn::Variable(hidden_)).value());
  }

 private:
  const nn::GPT& model_;
  std::vector<int64_t> begins_;
  Tensor hidden_;
};

struct Chunking {
  std::string name;
  int64_t first;  // tokens given at once at the start; 0: as the rest
  int64_t rest;   // tokens given at once after them
};

Logits cached(const nn::GPT& model, const CacheUnderTest& test, const Sequences& sequences,
              const Chunking& chunking, int64_t tokens) {
  const kernels::Phase phase("cached pass");
  const auto batch = static_cast<int64_t>(sequences.size());
  const auto cache =
      test.make(model, batch, tokens, std::max<int64_t>(chunking.first, chunking.rest));
  AllRows rows(model, sequences);
  Sequences heads, tails;
  for (const auto& sequence : sequences) {
    const auto cut = std::min<int64_t>(chunking.first, static_cast<int64_t>(sequence.size()));
    heads.emplace_back(sequence.begin(), sequence.begin() + cut);
    tails.emplace_back(sequence.begin() + cut, sequence.end());
  }
  feed(model, *cache, heads, std::max<int64_t>(1, chunking.first), model.dtype(), rows.collector());
  feed(model, *cache, tails, chunking.rest, model.dtype(), rows.collector(chunking.first));
  return rows.logits();
}

Logits uncached(const nn::GPT& model, kernels::AttentionMask mask, const Sequences& sequences) {
  const kernels::Phase phase("uncached pass");
  AllRows rows(model, sequences);
  feed_whole(model, sequences, mask, model.dtype(), rows.collector());
  return rows.logits();
}

double max_abs(const Logits& x) {
  double most = 0;
  for (const double v : x) {
    most = std::max(most, std::abs(v));
  }
  return most;
}

/// The largest difference; infinite when either holds a NaN or an infinity.
double max_abs_diff(const Logits& a, const Logits& b) {
  double most = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    const double diff = std::abs(a[i] - b[i]);
    if (!std::isfinite(diff)) {
      return INFINITY;
    }
    most = std::max(most, diff);
  }
  return most;
}

/// Compares the largest logit of every position.
void compare_greedy(const Logits& a, const Logits& b, int64_t vocab_size, double tie,
                    CacheCheck& check) {
  int64_t same = 0, counted = 0;
  const auto V = static_cast<std::ptrdiff_t>(vocab_size);
  for (auto row = b.begin(); row != b.end(); row += V) {
    const auto best = std::max_element(row, row + V);
    const double second =
        std::max(best == row ? -INFINITY : *std::max_element(row, best),
                 best + 1 == row + V ? -INFINITY : *std::max_element(best + 1, row + V));
    if (*best - second < tie) {
      ++check.ties;
      continue;
    }
    const auto other = a.begin() + (row - b.begin());
    same += std::max_element(other, other + V) - other == best - row ? 1 : 0;
    ++counted;
  }
  check.greedy_agreement =
      counted == 0 ? 1.0 : static_cast<double>(same) / static_cast<double>(counted);
}

/// Mean over positions of KL(a || b), each row of V logits being a distribution.
double mean_kl(const Logits& a, const Logits& b, int64_t vocab_size) {
  const auto V = static_cast<size_t>(vocab_size);
  const auto log_sum = [V](const double* row) {
    const double most = *std::max_element(row, row + V);
    double sum = 0;
    for (size_t i = 0; i < V; ++i) {
      sum += std::exp(row[i] - most);
    }
    return most + std::log(sum);
  };
  double total = 0;
  for (size_t at = 0; at < a.size(); at += V) {
    const double shift = log_sum(&b[at]) - log_sum(&a[at]), of_a = log_sum(&a[at]);
    for (size_t i = at; i < at + V; ++i) {
      total += std::exp(a[i] - of_a) * (a[i] - b[i] + shift);
    }
  }
  return a.empty()
             ? 0
             : std::max(0.0, total / (static_cast<double>(a.size()) / static_cast<double>(V)));
}

CacheCheck compare(const Logits& with_cache, const Logits& without, int64_t vocab_size,
                   double bound) {
  CacheCheck check;
  check.bound = bound;
  check.max_abs_logit = max_abs(without);
  check.max_abs_diff = max_abs_diff(with_cache, without);
  // A tie is what the sums' order could decide, whatever the bound.
  compare_greedy(with_cache, without, vocab_size, std::min(bound, kBoundF32) * check.max_abs_logit,
                 check);
  check.kl_nats = mean_kl(without, with_cache, vocab_size);
  check.ok = check.max_abs_diff <= bound * check.max_abs_logit && check.greedy_agreement == 1.0;
  return check;
}

/// One cache, one batch and their references.
class Checks {
 public:
  Checks(const nn::GPT& model, const nn::GPT& model_f64, const CacheUnderTest& test,
         const Sequences& sequences, int64_t longest)
      : model_(model),
        model_f64_(model_f64),
        test_(test),
        sequences_(sequences),
        longest_(longest),
        whole_(uncached(model, test.mask, sequences)),
        whole_f64_(uncached(model_f64, test.mask, sequences)) {}

  std::vector<CacheCheck> run(const std::vector<Chunking>& chunkings) {
    for (const Chunking& chunking : chunkings) {
      if (test_.tolerance == 0) {
        lossless(chunking);
      } else {
        lossy(chunking);
      }
    }
    return std::move(checks_);
  }

 private:
  Logits pieces(const nn::GPT& model, const Chunking& chunking) const {
    return cached(model, test_, sequences_, chunking, longest_);
  }

  void lossless(const Chunking& chunking) {
    const Logits f32 = pieces(model_, chunking);
    CacheCheck check = compare(f32, whole_, model_.vocab_size(), kBoundF32);
    check.ok = check.ok && max_abs_diff(f32, whole_f64_) <= 2 * max_abs_diff(whole_, whole_f64_);
    add(check, chunking, DType::f32);
    add(compare(pieces(model_f64_, chunking), whole_f64_, model_.vocab_size(), kBoundF64), chunking,
        DType::f64);
  }

  /// Rounding may change which logit is the largest: only their distance counts.
  void lossy(const Chunking& chunking) {
    CacheCheck check =
        compare(pieces(model_, chunking), whole_, model_.vocab_size(), test_.tolerance);
    check.ok = check.max_abs_diff <= test_.tolerance * check.max_abs_logit;
    add(check, chunking, DType::f32);
    if (at_once_.empty()) {
      at_once_ = pieces(model_f64_, {"all", 0, longest_});
    }
    check = compare(pieces(model_f64_, chunking), at_once_, model_.vocab_size(), kBoundF64);
    check.against = Against::at_once;
    add(check, chunking, DType::f64);
  }

  void add(CacheCheck check, const Chunking& chunking, DType dtype) {
    check.cache = test_.name;
    check.chunk = chunking.name;
    check.batch = static_cast<int64_t>(sequences_.size());
    check.dtype = dtype;
    checks_.push_back(check);
  }

  const nn::GPT &model_, &model_f64_;
  const CacheUnderTest& test_;
  const Sequences& sequences_;
  int64_t longest_;
  Logits whole_, whole_f64_;
  Logits at_once_;  // through the cache, in float64
  std::vector<CacheCheck> checks_;
};

/// Ten times the largest difference measured on trained models of configs/gqa.yaml (4e-4, 1.7e-3,
/// 5.2e-3 and 7e-2 of the largest logit for f16, bf16, int8 and int4), since models with sharper
/// attention lose more.
double tolerance_of(configs::KVType type) {
  switch (type) {
    case configs::KVType::f64:
    case configs::KVType::f32:
      return kBoundF32;
    case configs::KVType::f16:
      return 0.005;
    case configs::KVType::bf16:
      return 0.03;
    case configs::KVType::int8:
      return 0.06;
    case configs::KVType::int4:
      return 0.6;
  }
  throw Error("[verify] a type that no cache has");
}

}  // namespace

double storage_tolerance(configs::KVTypes types) {
  return std::max(tolerance_of(types.k), tolerance_of(types.v));
}

CacheUnderTest cache_under_test(const CacheSpec& spec) {
  CacheUnderTest cache;
  cache.name = to_string(spec);
  cache.mask = spec.mask;
  cache.tolerance = spec.lossless(DType::f32) ? 0 : storage_tolerance(spec.types(DType::f32));
  cache.make = block_cache_maker(spec);
  return cache;
}

MakeCache block_cache_maker(const CacheSpec& spec) {
  check_input(!spec.recompute, "[verify] the cache \"none\" keeps nothing that could be compared");
  return [spec](const nn::GPT& model, int64_t batch, int64_t tokens, int64_t chunk) {
    check_cache_spec(spec, model.config());
    // A block at a time is what the smallest ring takes anyway: verify that ring too.
    const int64_t at_once = chunk == kernels::KVView::kBlock ? 1 : chunk;
    return std::make_unique<BlockCache>(model.config(), BlockTable(spec.mask, tokens, at_once),
                                        batch, spec.storage(model.dtype()), model.device());
  };
}

std::vector<CacheCheck> verify_cache(const nn::GPT& model, const nn::GPT& model_f64,
                                     const CacheUnderTest& cache, const Sequences& sequences) {
  size_t longest = 0;
  for (const auto& sequence : sequences) {
    longest = std::max(longest, sequence.size());
  }
  const auto tokens = static_cast<int64_t>(longest);
  std::vector<Chunking> chunkings = {{"all", 0, tokens}, {"1", 0, 1}, {"3", 0, 3}, {"16", 0, 16}};
  if (prefill_chunk(model.config(), cache.mask) == kernels::KVView::kBlock) {
    chunkings.push_back({"64", 0, kernels::KVView::kBlock});
  }
  return Checks(model, model_f64, cache, sequences, tokens).run(chunkings);
}

std::vector<CacheCheck> verify_published_setting(const nn::GPT& model, const nn::GPT& model_f64,
                                                 const CacheUnderTest& cache,
                                                 const std::vector<int32_t>& tokens) {
  check(static_cast<int64_t>(tokens.size()) == kPublishedPrefill + kPublishedDecode,
        "[verify] the published setting has {} tokens: got {}",
        kPublishedPrefill + kPublishedDecode, tokens.size());
  const Chunking chunking{fmt::format("{}, then 1", kPublishedPrefill), kPublishedPrefill, 1};
  const Sequences one = {tokens};
  return Checks(model, model_f64, cache, one, std::ssize(tokens)).run({chunking});
}

std::unique_ptr<nn::GPT> to_f64(const nn::GPT& model) {
  auto wide = std::make_unique<nn::GPT>(
      model.config(), model.vocab_size(),
      nn::Scope{.dtype = DType::f64, .device = model.device(), .draw = false});
  const auto from = model.parameters(), to = wide->parameters();
  for (size_t i = 0; i < from.size(); ++i) {
    Tensor value = to[i].value.value();
    kernels::backend(model.device()).cast(from[i].value.value(), value);
    nn::Variable(to[i].value).changed();
  }
  return wide;
}

std::vector<int32_t> synthetic_tokens(int64_t count, int64_t vocab_size, uint64_t seed,
                                      uint64_t row) {
  const RandomStream stream(seed, "synthetic tokens", row);
  std::vector<int32_t> tokens;
  for (int64_t i = 0; i < count; ++i) {
    tokens.push_back(static_cast<int32_t>(
        stream.integer(static_cast<uint64_t>(i), static_cast<uint64_t>(vocab_size))));
  }
  return tokens;
}

}  // namespace headroom::infer
