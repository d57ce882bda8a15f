// Every knob of the program, once: its default with the reason for it, its range, and what it does.
// Reading, writing, overriding, printing, comparing and explaining a config all walk the field
// lists below.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "configs/enums.h"

namespace headroom::configs {

/// What is known about a field besides its value. min and max bind numbers, and each element of a
/// list.
struct Field {
  std::string_view name;
  std::string_view help;
  double min = 0;
  double max = 0;
};

/// Sizes are bounded only by what a kernel's int32 index can name: whether a machine can hold a
/// model is require_training_memory's question, which answers in bytes (configs/memory.h).
inline constexpr double kMaxSize = 2147483647;

/// AdamW's epsilon. It is no knob: at 1e-8 it only keeps 0/0 away, and no published recipe tunes
/// it.
inline constexpr double kAdamwEps = 1e-8;

struct ModelConfig {
  int64_t n_layer = 6;                     // the published sweep's depth, heads, width and context
  int64_t n_head = 8;                      // 8 heads allow n_kv_head 8, 4, 2 and 1
  int64_t n_kv_head = 2;                   // a quarter of MHA's cache
  int64_t n_embd = 256;                    // heads of 32
  int64_t given_head_dim = 0;              // key head_dim; read it through head_dim()
  int64_t given_n_ff = 1024;               // key n_ff; read it through n_ff()
  int64_t block_size = 256;                // the published context
  int64_t vocab_size = 0;                  // the tokenizer knows it
  Position position = Position::rope;      // goes on past block_size; no table to learn
  RopeStyle rope_style = RopeStyle::half;  // Hugging Face's layout, so checkpoints travel
  double rope_base = 10000;                // RoFormer's
  Norm norm = Norm::rmsnorm;               // Llama's: no mean to take away
  double norm_eps = 1e-6;                  // Llama's
  MlpKind mlp = MlpKind::gelu;             // the published model's
  bool qk_norm = false;                    // off as published; the quality recipe turns it on
  Bias bias = Bias::none;                  // GPTs do as well without
  bool tie_embeddings = true;              // a character model has few tokens to spend a head on
  double dropout = 0.0;                    // a few passes over the corpus overfit little
  double logit_softcap = 0.0;              // off
  AttentionKind attention = AttentionKind::gqa;  // the published comparison's
  int64_t given_kv_rank = 0;                     // key kv_rank; read it through kv_rank()
  int64_t given_rope_head_dim = 0;               // key rope_head_dim; read it through the function
  int64_t window = 0;                            // every layer sees everything
  std::string window_pattern = "L";              // with a window, every layer has it
  int64_t sinks = 0;                             // a model trained with a window needs none
  SinkKind sink = SinkKind::none;                // as published

  /// D, the width of one head: as given, or n_embd / n_head.
  int64_t head_dim() const { return given_head_dim != 0 ? given_head_dim : n_embd / n_head; }
  /// Width of all queries, H * D.
  int64_t q_dim() const { return n_head * head_dim(); }
  /// Width of all keys (and of all values), K * D.
  int64_t kv_dim() const { return n_kv_head * head_dim(); }
  /// Query heads that share one KV head, H / K.
  int64_t group() const { return n_head / n_kv_head; }
  bool mla() const { return attention == AttentionKind::mla; }
  /// R, the width of MLA's latent: as given, or 2 D, the bytes of one KV head.
  int64_t kv_rank() const { return given_kv_rank != 0 ? given_kv_rank : 2 * head_dim(); }
  /// Dr, the width of the part of MLA's queries and of its one shared key that rope rotates: as
  /// given, or D / 2, which is DeepSeek-V2's ratio, rounded up to pairs; 0 with learned positions.
  int64_t rope_head_dim() const {
    if (position == Position::learned) {
      return 0;
    }
    return given_rope_head_dim != 0 ? given_rope_head_dim : (head_dim() + 3) / 4 * 2;
  }
  /// F, the MLP's inner width: as given, or 4 n_embd; swiglu's third matrix is paid for with 8/3
  /// n_embd, rounded up to a multiple of 64 (arXiv 2002.05202; the rounding is Llama's).
  int64_t n_ff() const {
    if (given_n_ff != 0) {
      return given_n_ff;
    }
    return mlp == MlpKind::swiglu ? (8 * n_embd + 3 * 64 - 1) / (3 * 64) * 64 : 4 * n_embd;
  }
  /// Whether a LayerNorm adds a bias; an RMSNorm never does.
  bool norm_bias() const { return norm == Norm::layernorm && bias != Bias::none; }
  /// Whether the projections of a block add a bias; the head never does.
  bool linear_bias() const { return bias == Bias::all; }

  bool operator==(const ModelConfig&) const = default;

  template <class Self, class Visit>
  static void fields(Self& self, Visit&& visit) {
    visit(Field{"n_layer", "blocks", 1, kMaxSize}, self.n_layer);
    visit(Field{"n_head", "query heads, a multiple of n_kv_head", 1, kMaxSize}, self.n_head);
    visit(Field{"n_kv_head", "key/value heads: n_head is MHA, 1 is MQA", 1, kMaxSize},
          self.n_kv_head);
    visit(Field{"n_embd", "width of the model", 1, kMaxSize}, self.n_embd);
    visit(Field{"head_dim", "width of one head; 0: n_embd / n_head", 0, kMaxSize},
          self.given_head_dim);
    visit(Field{"n_ff",
                "inner width of the MLP; 0: 4 n_embd, or 8/3 n_embd rounded up to 64 for swiglu", 0,
                kMaxSize},
          self.given_n_ff);
    visit(Field{"block_size", "tokens a training sequence has", 1, kMaxSize}, self.block_size);
    visit(Field{"vocab_size", "tokens in the vocabulary; 0: the tokenizer's", 0, kMaxSize},
          self.vocab_size);
    visit(Field{"position", "how positions enter"}, self.position);
    visit(Field{"rope_style", "components that rope pairs up"}, self.rope_style);
    visit(Field{"rope_base", "rope's longest wavelength over 2 pi", 2, 1e12}, self.rope_base);
    visit(Field{"norm", "normalisation before each branch and the head"}, self.norm);
    visit(Field{"norm_eps", "added to the variance inside the norm", 1e-12, 0.1}, self.norm_eps);
    visit(Field{"mlp", "activation; gelu is the tanh form"}, self.mlp);
    visit(Field{"qk_norm", "RMSNorm on each query and key head (arXiv 2010.04245)"}, self.qk_norm);
    visit(Field{"bias", "what carries a bias"}, self.bias);
    visit(Field{"tie_embeddings", "the head is the token embedding"}, self.tie_embeddings);
    visit(Field{"dropout", "share dropped after the embedding and on both branches", 0, 0.99},
          self.dropout);
    visit(Field{"logit_softcap", "logits become c tanh(logit / c); 0: off (arXiv 2408.00118)", 0,
                1e6},
          self.logit_softcap);
    visit(Field{"attention", "gqa: keys and values per KV head; mla: one latent for all heads"},
          self.attention);
    visit(Field{"kv_rank", "width of mla's latent; 0: 2 head_dim", 0, kMaxSize},
          self.given_kv_rank);
    visit(Field{"rope_head_dim",
                "width of what rope rotates under mla; 0: head_dim / 2 rounded up to even", 0,
                kMaxSize},
          self.given_rope_head_dim);
    visit(Field{"window", "keys a local layer sees, its own included; 0: every layer sees all", 0,
                kMaxSize},
          self.window);
    visit(Field{"window_pattern", "layers by turns: L has the window, G sees all, as in LG"},
          self.window_pattern);
    visit(Field{"sinks", "first keys that local layers see besides the window", 0, kMaxSize},
          self.sinks);
    visit(Field{"sink", "learned: one more logit per head in its softmax, with no value"},
          self.sink);
  }
};

struct DataConfig {
  std::string corpus;  // no default: what a model reads is never guessed
  TokenizerKind tokenizer = TokenizerKind::char_level;  // the published study's
  int64_t vocab_size = 0;                               // only bpe has one to choose
  double val_fraction = 0.1;                            // nanoGPT's split
  Order order = Order::random;                          // sequences independent of one another

  bool operator==(const DataConfig&) const = default;

  template <class Self, class Visit>
  static void fields(Self& self, Visit&& visit) {
    visit(Field{"corpus", "UTF-8 text file to learn from"}, self.corpus);
    visit(Field{"tokenizer", "char: code points, byte: bytes, bpe: byte-level BPE"},
          self.tokenizer);
    visit(Field{"vocab_size", "tokens bpe learns, 256 bytes included; 0 for char and byte", 0, 1e6},
          self.vocab_size);
    visit(
        Field{"val_fraction", "share of the corpus, at its end, kept for validation", 0.0001, 0.9},
        self.val_fraction);
    visit(Field{"order", "where the sequences of a batch start"}, self.order);
  }
};

struct TrainConfig {
  int64_t steps = 1000;                           // four passes over Tiny Shakespeare
  int64_t batch_size = 16;                        // published
  int64_t grad_accumulation = 1;                  // the batch fits
  OptimizerKind optimizer = OptimizerKind::muon;  // reaches a loss in fewer tokens (Jordan 2024)
  double lr = 0.02;                               // Muon's published rate; AdamW wants about 0.003
  double momentum = 0.95;                         // Muon's published momentum
  double adamw_lr = 0.003;                        // for what Muon leaves: embeddings, norms, head
  double beta1 = 0.9;
  double beta2 = 0.95;                         // short runs need a shorter memory than 0.999
  double weight_decay = 0.1;                   // GPT-3's (arXiv 2005.14165, appendix B)
  double clip_norm = 1.0;                      // GPT-3's
  Schedule schedule = Schedule::wsd;           // a longer run can branch off its constant part
  int64_t warmup_steps = 50;                   // until the moments know the gradients' size
  double decay_fraction = 0.5;                 // short runs gain most while the rate falls
  double final_lr = 0.02;                      // nearly zero, and still learning
  int64_t eval_every = 100;                    // ten points on the loss curve
  int64_t save_every = 100;                    // a kill costs a minute or so
  Precision precision = Precision::automatic;  // the fastest that trains as well
  int64_t seed = 1;                            // any; equal seeds give equal runs
  DeviceKind device = DeviceKind::cpu;         // every machine has one
  int64_t threads = 0;                         // all cores
  bool deterministic = true;                   // a result that repeats can be looked into
  bool tf32 = false;                           // f32 means f32 unless it is said
  bool shard_optimizer = false;                // small models' state fits on every worker

  bool operator==(const TrainConfig&) const = default;

  template <class Self, class Visit>
  static void fields(Self& self, Visit&& visit) {
    visit(Field{"steps", "updates of the weights; 0: only evaluate", 0, 1e12}, self.steps);
    visit(Field{"batch_size", "sequences per pass", 1, 1e6}, self.batch_size);
    visit(Field{"grad_accumulation", "passes per step; their gradients are averaged", 1, 1e6},
          self.grad_accumulation);
    visit(Field{"optimizer", "muon: Muon for hidden matrices, AdamW for the rest"}, self.optimizer);
    visit(Field{"lr", "peak rate of the optimizer", 0, 1e6}, self.lr);
    visit(Field{"momentum", "Muon's momentum (Nesterov)", 0, 0.9999}, self.momentum);
    visit(Field{"adamw_lr", "peak rate of AdamW's share under muon", 0, 1e6}, self.adamw_lr);
    visit(Field{"beta1", "AdamW's decay of the first moment", 0, 0.9999}, self.beta1);
    visit(Field{"beta2", "AdamW's decay of the second moment", 0, 0.999999}, self.beta2);
    visit(Field{"weight_decay", "decoupled decay of parameters with two dimensions", 0, 100},
          self.weight_decay);
    visit(Field{"clip_norm", "largest global gradient norm; 0: no clipping", 0, 1e6},
          self.clip_norm);
    visit(Field{"schedule", "course of the rate after warm-up"}, self.schedule);
    visit(Field{"warmup_steps", "steps of linear warm-up; at most steps", 0, 1e12},
          self.warmup_steps);
    visit(Field{"decay_fraction", "share of the steps, at their end, in which wsd decays", 0, 1},
          self.decay_fraction);
    visit(Field{"final_lr", "rate at the last step over the peak rate", 0, 1}, self.final_lr);
    visit(Field{"eval_every", "steps between evaluations; 0: only after the last", 0, 1e12},
          self.eval_every);
    visit(Field{"save_every", "steps between saves; 0: only after evaluations", 0, 1e12},
          self.save_every);
    visit(Field{"precision", "auto: bf16 where the device computes in it"}, self.precision);
    visit(Field{"seed", "of every random stream", 0, 9007199254740992.0}, self.seed);
    visit(Field{"device", "where to compute, unless --device says it: cuda is the first GPU"},
          self.device);
    visit(Field{"threads", "0: one per core", 0, 1024}, self.threads);
    visit(Field{"deterministic",
                "equal runs on one GPU of a kind give equal bits; false: cuDNN adds in any order"},
          self.deterministic);
    visit(Field{"tf32", "in fp32 a GPU multiplies matrices rounded to 10 bits of mantissa"},
          self.tf32);
    visit(Field{"shard_optimizer", "each of several workers keeps a part of the optimizer's state"},
          self.shard_optimizer);
  }
};

struct SweepConfig {
  std::vector<int64_t> n_kv_head = {8, 4, 2, 1};  // the published comparison
  std::vector<Relief> also = {};                  // the published comparison has no more
  std::vector<int64_t> seeds = {1, 2, 3};         // the fewest that give an interval worth reading
  Fairness fair = Fairness::same_shape;           // as published

  bool operator==(const SweepConfig&) const = default;

  template <class Self, class Visit>
  static void fields(Self& self, Visit&& visit) {
    visit(Field{"n_kv_head", "the models to compare", 1, kMaxSize}, self.n_kv_head);
    visit(Field{"also", "more models, with multi-head attention but for this"}, self.also);
    visit(Field{"seeds", "each model is trained once per seed", 0, 9007199254740992.0}, self.seeds);
    visit(Field{"fair", "what stays equal across the models"}, self.fair);
  }
};

struct Config {
  ModelConfig model;
  DataConfig data;
  TrainConfig train;
  SweepConfig sweep;

  bool operator==(const Config&) const = default;

  /// Calls visit(name, section) for each section, in the order of the file.
  template <class Self, class Visit>
  static void sections(Self& self, Visit&& visit) {
    visit(std::string_view("model"), self.model);
    visit(std::string_view("data"), self.data);
    visit(std::string_view("train"), self.train);
    visit(std::string_view("sweep"), self.sweep);
  }
};

/// Calls visit(section name, Field, value) for every key of a (const) Config, in the order of the
/// file.
template <class Self, class Visit>
void for_each_field(Self& config, Visit&& visit) {
  Config::sections(config, [&](std::string_view name, auto& section) {
    std::remove_cvref_t<decltype(section)>::fields(
        section, [&](const Field& field, auto& value) { visit(name, field, value); });
  });
}

}  // namespace headroom::configs
