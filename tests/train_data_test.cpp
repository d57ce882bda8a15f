// Batches, corpora at the edge of too short, and the exact loss (DAT-01, DAT-03, TRN-03's data).
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <set>

#include "golden.h"
#include "text/byte_tokenizer.h"
#include "train/batches.h"
#include "train_run.h"

namespace headroom::testing {

using train::Batches;
using train::BatchOptions;

namespace {

std::vector<int32_t> counting(int32_t n) {
  std::vector<int32_t> tokens(static_cast<size_t>(n));
  std::iota(tokens.begin(), tokens.end(), 0);
  return tokens;
}

std::vector<int32_t> tokens_of_step(const Batches& batches, int64_t step, int64_t micros) {
  std::vector<int32_t> all;
  for (int64_t m = 0; m < micros; ++m) {
    const auto part = batches.get(step, m).tokens.to_vector<int32_t>();
    all.insert(all.end(), part.begin(), part.end());
  }
  return all;
}

}  // namespace

TEST(Batches, TargetsAreTheNextTokens) {
  const Batches batches(counting(100), {.block_size = 8, .batch_size = 3, .seed = 1});
  for (int64_t step = 1; step < 50; ++step) {
    const train::Batch b = batches.get(step, 0);
    const auto tokens = b.tokens.to_vector<int32_t>(), targets = b.targets.to_vector<int32_t>();
    for (size_t i = 0; i < tokens.size(); ++i) {
      ASSERT_EQ(targets[i], tokens[i] + 1);
      ASSERT_TRUE(i % 8 == 0 || tokens[i] == tokens[i - 1] + 1);
    }
  }
}

TEST(Batches, DivisionIntoBatchesShiftsNoSequence) {
  const auto of = [](int64_t batch, int64_t accumulation) {
    return tokens_of_step(
        Batches(
            counting(500),
            {.block_size = 8, .batch_size = batch, .grad_accumulation = accumulation, .seed = 5}),
        7, accumulation);
  };
  EXPECT_EQ(of(32, 1), of(8, 4));
  EXPECT_EQ(of(32, 1), of(1, 32));
}

TEST(Batches, RandomStartsReachBothEndsAndDependOnTheSeed) {
  std::set<int64_t> starts;
  const Batches batches(counting(12), {.block_size = 8, .batch_size = 1, .seed = 0});
  for (int64_t step = 1; step < 200; ++step) starts.insert(batches.start(step, 0));
  EXPECT_EQ(starts, (std::set<int64_t>{0, 1, 2, 3}));
  const Batches a(counting(5000), {.block_size = 8, .batch_size = 1, .seed = 0});
  const Batches b(counting(5000), {.block_size = 8, .batch_size = 1, .seed = 1});
  EXPECT_NE(a.start(1, 0), b.start(1, 0));
}

TEST(Batches, SequentialOrderReadsEachPassFromItsStart) {
  // 5 * 2 * 8 + 7 tokens: ten sequences need 81, so 6 targets are left over.
  const Batches batches(counting(87),
                        {.block_size = 8, .batch_size = 2, .order = configs::Order::sequential});
  EXPECT_EQ(batches.sequences_per_pass(), 10);
  EXPECT_EQ(batches.leftover(), 6);
  for (int64_t step = 1; step <= 15; ++step) {
    EXPECT_EQ(batches.start(step, 0), (step - 1) % 5 * 16);
    EXPECT_EQ(batches.start(step, 1), (step - 1) % 5 * 16 + 8);
    EXPECT_EQ(batches.pass(step), (step - 1) / 5 + 1);
  }
  // Where the batch is no divisor of a pass, it goes on with the next one.
  const Batches odd(counting(87),
                    {.block_size = 8, .batch_size = 3, .order = configs::Order::sequential});
  EXPECT_EQ(odd.start(4, 0), 72);
  EXPECT_EQ(odd.start(4, 1), 0);
}

TEST(Corpora, TooShortOnesAreRefusedWithCountPartAndMinimum) {
  for (const int64_t bytes : {0, 1, 15, 16, 18, 60}) {
    const Workplace work(bytes);
    const std::string message = message_of([&] {
      Recorder recorder;
      work.train(work.config(), "run", recorder);
    });
    const int64_t train = static_cast<int64_t>(std::floor(0.9 * static_cast<double>(bytes)));
    const bool in_train = train < 17;
    const int64_t count = in_train ? train : bytes - train;
    EXPECT_NE(message.find(std::to_string(count)), std::string::npos) << bytes << message;
    EXPECT_NE(message.find(in_train ? "train" : "val"), std::string::npos) << bytes << message;
    EXPECT_NE(message.find("17"), std::string::npos) << bytes << message;
  }
}

TEST(Corpora, OneRepeatedCharacterIsLearnedAtOnce) {
  const Workplace work;
  write_file(work.corpus, std::string(10000, 'a'));
  Recorder recorder;
  const auto result = work.train(work.config(), "run", recorder);
  EXPECT_EQ(recorder.start.vocab_size, 1);
  EXPECT_NEAR(result.final_loss, 0, 1e-6);
}

TEST(Corpora, ThreeSequentialPassesAreCounted) {
  const Workplace work(364);  // 327 = 5 * 4 * 16 + 7 tokens to train on, 37 to validate
  configs::Config config = work.config();
  config.data.order = configs::Order::sequential;
  config.train.steps = 15;
  Recorder recorder;
  work.train(config, "run", recorder);
  for (const train::Progress& p : recorder.steps) {
    EXPECT_EQ(p.pass, (p.step - 1) / 5 + 1);
  }
  EXPECT_EQ(metrics_of(work.folder / "run").back().value("val_loss", 0.0),
            recorder.evaluations.at(15).loss_nats);
  EXPECT_EQ(recorder.evaluations.at(15).tokens, 36);
  EXPECT_TRUE(std::ranges::any_of(recorder.notes, [](const std::string& note) {
    return note.find("the 6 tokens left over") != std::string::npos;
  }));
}

class ExactLoss : public ::testing::Test {
 protected:
  /// -log p of every target, each from a forward pass that ends right before it.
  double by_hand(int64_t context, int64_t stride) const {
    const autograd::NoGrad no_gradients;
    const auto n = static_cast<int64_t>(tokens.ids.size());
    double sum = 0;
    for (int64_t target = 1; target < n; ++target) {
      const int64_t window = std::max<int64_t>(0, (target - context + stride - 1) / stride);
      const int64_t begin = window * stride;
      const std::vector<int32_t> seen(tokens.ids.begin() + begin, tokens.ids.begin() + target);
      const auto length = static_cast<int64_t>(seen.size());
      const auto hidden = model.hidden(Tensor::from(seen, {1, length}), pass);
      const std::vector<double> logits =
          to_doubles(model
                         .head(autograd::Variable(
                             hidden.value().reshape({length, 16}).rows(length - 1, length)))
                         .value());
      double total = 0;
      for (const double l : logits) total += std::exp(l);
      sum += std::log(total) - logits[static_cast<size_t>(tokens.ids[static_cast<size_t>(target)])];
    }
    return sum / static_cast<double>(n - 1);
  }

  const text::ByteTokenizer tokenizer;
  const text::Tokens tokens{tokenizer.encode(small_text(71)), 71};
  const nn::GPT model{small_config("").model, 256, nn::Scope{.seed = 1}};
  const nn::Pass pass{
      .dtype = DType::f32, .cache = nullptr, .counts = {}, .mask = {}, .dropout = nullptr};
};

TEST_F(ExactLoss, EqualsTheSumByHandForEveryBatchSize) {
  // Weights large enough that contexts matter.
  for (const nn::Parameter& p : model.parameters()) {
    Tensor w = p.value.value();
    if (w.rank() == 2) kernels::backend(kCpu).scale(w, 8.0, {w});
  }
  for (const auto& [context, stride] : {std::pair<int64_t, int64_t>{16, 16},
                                        {16, 5},
                                        {16, 1},
                                        {7, 7},
                                        {7, 3},
                                        {100, 100},
                                        {70, 70}}) {
    const double expected = by_hand(context, stride);
    for (const int64_t batch : {1, 3, 16}) {
      const train::Evaluation result = train::evaluate(
          model, tokens, tokenizer, {.context = context, .stride = stride, .batch_size = batch});
      EXPECT_NEAR(result.loss_nats, expected, 1e-6 * expected) << context << " " << stride;
      EXPECT_EQ(result.tokens, 70);
      EXPECT_EQ(result.bytes, 70);
      EXPECT_NEAR(result.perplexity, std::exp(expected), 1e-5 * std::exp(expected));
      EXPECT_NEAR(result.bits_per_byte, expected / std::log(2.0), 1e-6 * expected);
      EXPECT_EQ(result.windows, context >= 70 ? 1 : (70 - context + stride - 1) / stride + 1);
    }
  }
  EXPECT_GT(std::abs(by_hand(16, 16) - by_hand(16, 1)), 1e-3) << "the windows must matter";
}

TEST_F(ExactLoss, DefaultsToDisjointWindowsOfBlockSize) {
  const train::Evaluation result = train::evaluate(model, tokens, tokenizer, {});
  EXPECT_EQ(result.context, 16);
  EXPECT_EQ(result.stride, 16);
  EXPECT_EQ(result.windows, 5);  // 4 * 16 + 6
}

TEST_F(ExactLoss, BytesAreThoseOfTheTargets) {
  const std::string text = "\xC3\xA9zz\xC3\xA9";  // é z z é: the first is no target
  std::vector<std::string> notes;
  const auto chars = text::make_tokenizer("char", 0, text, notes);
  const text::Tokens few{chars->encode(text), static_cast<int64_t>(text.size())};
  const train::Evaluation result = train::evaluate(model, few, *chars, {});
  EXPECT_EQ(result.tokens, 3);
  EXPECT_EQ(result.bytes, 4);
  EXPECT_NEAR(result.bits_per_byte, result.loss_nats * 3 / std::log(2.0) / 4, 1e-9);
}

TEST_F(ExactLoss, RefusesAStrideThatSkipsTokens) {
  EXPECT_THROW(train::evaluate(model, tokens, tokenizer, {.context = 4, .stride = 5}), InputError);
  EXPECT_THROW(train::evaluate(model, {{3}, 1}, tokenizer, {}), InputError);
}

}  // namespace headroom::testing
