// Builds a two-layer model with one KV head, trains it on a sentence and samples from it.
#include <cstdio>
#include <string>

#include "infer/engine.h"
#include "text/tokenizer.h"
#include "train/batches.h"
#include "train/optimizer.h"
#include "train/step.h"

using namespace headroom;

int main() {
  std::string text;
  for (int i = 0; i < 40; ++i) {
    text += "How few heads can a model afford? ";
  }
  std::vector<std::string> notes;
  const auto tokenizer = text::make_tokenizer("char", 0, text, notes);

  configs::ModelConfig model{.n_layer = 2, .n_head = 4, .n_kv_head = 1, .n_embd = 64};
  model.given_n_ff = 256;
  model.block_size = 64;
  const nn::GPT gpt(model, tokenizer->vocab_size(), nn::Scope{.seed = 1});

  const train::Batches batches(tokenizer->encode(text),
                               {.block_size = 64, .batch_size = 8, .seed = 1});
  train::Optimizer optimizer({.lr = 0.02}, gpt.parameters(), DType::f32);
  double loss = 0;
  for (int64_t step = 1; step <= 60; ++step) {
    const train::Batch batch[] = {batches.get(step, 0)};
    loss = train::train_step(gpt, optimizer, batch, {.step = step, .clip_norm = 1.0}).loss;
  }
  infer::GenerateOptions options;
  options.tokens = 33;
  options.sampling.temperature = 0;
  const auto generated =
      infer::generate(gpt, {tokenizer->encode("H")}, options, [](auto...) { return true; });
  std::printf("loss %.3f: H%s\n", loss, tokenizer->decode(generated.tokens[0]).c_str());
}
