// Ranges and the rules between keys.
#include "configs/rules.h"

#include <algorithm>

#include "configs/value.h"
#include "tensor/check.h"

namespace headroom::configs {
namespace {

std::optional<Problem> head_problem(const ModelConfig& m) {
  if (m.n_head < 1) {
    return std::nullopt;  // its range says so
  }
  if (m.n_kv_head < 1 || m.n_kv_head > m.n_head || m.n_head % m.n_kv_head != 0) {
    return Problem{
        {"model.n_kv_head", "model.n_head"},
        fmt::format(
            "model.n_head is {} and model.n_kv_head is {}, but n_head must be a multiple of "
            "n_kv_head, which is from 1 to n_head",
            m.n_head, m.n_kv_head)};
  }
  return std::nullopt;
}

std::optional<Problem> range_problem(const Config& config) {
  std::optional<Problem> problem;
  for_each_field(config, [&](std::string_view section, const Field& field, const auto& value) {
    if (!problem && !in_range(field, value)) {
      using T = std::remove_cvref_t<decltype(value)>;
      problem = Problem{{fmt::format("{}.{}", section, field.name)},
                        fmt::format("{}.{} is {}, but must be {}", section, field.name,
                                    to_text(value), allowed<T>(field))};
    }
  });
  return problem;
}

std::optional<Problem> width_problem(const ModelConfig& m) {
  if (m.given_head_dim == 0 && m.n_embd % m.n_head != 0) {
    return Problem{
        {"model.n_embd", "model.n_head"},
        fmt::format("model.n_embd is {} and model.n_head is {}, but n_embd must be a multiple of "
                    "n_head unless model.head_dim is given",
                    m.n_embd, m.n_head)};
  }
  if (m.position == Position::rope && !m.mla() && m.head_dim() % 2 != 0) {
    const std::string origin =
        m.given_head_dim != 0 ? "" : fmt::format(" (n_embd {} / n_head {})", m.n_embd, m.n_head);
    return Problem{
        {"model.head_dim", "model.n_embd", "model.n_head", "model.position"},
        fmt::format("model.head_dim is {}{} and model.position is rope, which rotates pairs: "
                    "head_dim must be even",
                    m.head_dim(), origin)};
  }
  if (m.bias == Bias::norm && m.norm == Norm::rmsnorm) {
    return Problem{
        {"model.bias", "model.norm"},
        "model.bias is norm and model.norm is rmsnorm, but an RMSNorm has no bias: use layernorm, "
        "or bias none or all"};
  }
  return std::nullopt;
}

/// Under mla every query head has keys and values of its own, made from the latent.
std::optional<Problem> latent_problem(const ModelConfig& m, const SweepConfig& sweep) {
  if (!m.mla()) {
    if (std::find(sweep.also.begin(), sweep.also.end(), Relief::mla) != sweep.also.end()) {
      return std::nullopt;  // they are for that row
    }
    for (const auto& [key, value] : {std::pair("model.kv_rank", m.given_kv_rank),
                                     std::pair("model.rope_head_dim", m.given_rope_head_dim)}) {
      if (value != 0) {
        return Problem{
            {key, "model.attention"},
            fmt::format("{} is {} and model.attention is gqa, which has no latent: leave "
                        "it 0, or use mla",
                        key, value)};
      }
    }
    return std::nullopt;
  }
  if (m.n_kv_head != m.n_head) {
    return Problem{{"model.n_kv_head", "model.attention"},
                   fmt::format("model.n_kv_head is {} and model.attention is mla, whose latent "
                               "serves every head: n_kv_head must be n_head, {}",
                               m.n_kv_head, m.n_head)};
  }
  if (m.position == Position::learned && m.given_rope_head_dim != 0) {
    return Problem{{"model.rope_head_dim", "model.position"},
                   fmt::format("model.rope_head_dim is {} and model.position is learned, which "
                               "rotates nothing: leave it 0",
                               m.given_rope_head_dim)};
  }
  if (m.given_rope_head_dim % 2 != 0) {
    return Problem{{"model.rope_head_dim"},
                   fmt::format("model.rope_head_dim is {}, but rope rotates pairs: it must be even",
                               m.given_rope_head_dim)};
  }
  return std::nullopt;
}

std::optional<Problem> window_problem(const ModelConfig& m) {
  const std::string& pattern = m.window_pattern;
  if (pattern.find_first_not_of("LG") != std::string::npos ||
      pattern.find('L') == std::string::npos) {
    return Problem{{"model.window_pattern"},
                   fmt::format("model.window_pattern is {}, but must be the letters L (a layer "
                               "with the window) and G (one that sees all), with an L among them",
                               to_text(pattern))};
  }
  if (m.window == 0 && pattern != "L") {
    return Problem{{"model.window_pattern", "model.window"},
                   fmt::format("model.window_pattern is {} and model.window is 0, so that no layer "
                               "has a window: give one",
                               pattern)};
  }
  if (m.window == 0 && m.sinks != 0) {
    return Problem{{"model.sinks", "model.window"},
                   fmt::format("model.sinks is {} and model.window is 0, but a layer that sees all "
                               "sees its first keys too: give a window, or leave sinks 0",
                               m.sinks)};
  }
  return std::nullopt;
}

std::optional<Problem> data_problem(const DataConfig& d) {
  const bool bpe = d.tokenizer == TokenizerKind::bpe;
  if (bpe ? d.vocab_size < 257 : d.vocab_size != 0) {
    return Problem{
        {"data.vocab_size", "data.tokenizer"},
        fmt::format("data.vocab_size is {} and data.tokenizer is {}, but vocab_size must be {}",
                    d.vocab_size, name_of(d.tokenizer),
                    bpe ? "at least 257 for bpe: 256 bytes and one merge" : "0 unless it is bpe")};
  }
  return std::nullopt;
}

/// A row of a sweep beside those of n_kv_head must differ from them.
std::optional<Problem> sweep_problem(const Config& config) {
  const ModelConfig& m = config.model;
  for (const Relief relief : config.sweep.also) {
    const auto [key, has] = relief == Relief::mla ? std::pair("model.attention", m.mla())
                            : relief == Relief::window
                                ? std::pair("model.window", m.window != 0)
                                : std::pair("model.sink", m.sink == SinkKind::learned);
    if (has) {
      return Problem{{"sweep.also", key},
                     fmt::format("sweep.also has {}, but by {} every model of the sweep has it",
                                 name_of(relief), key)};
    }
  }
  if (!config.sweep.also.empty() && config.sweep.fair == Fairness::same_cache) {
    return Problem{{"sweep.also", "sweep.fair"},
                   fmt::format("sweep.also is {} and sweep.fair is same-cache, which only whole "
                               "numbers of layers could give them: use same-shape or same-params",
                               to_text(config.sweep.also))};
  }
  return std::nullopt;
}

}  // namespace

std::optional<Problem> find_problem(const Config& config) {
  std::optional<Problem> problem = head_problem(config.model);
  if (!problem) {
    problem = range_problem(config);
  }
  if (!problem) {
    problem = width_problem(config.model);
  }
  if (!problem) {
    problem = latent_problem(config.model, config.sweep);
  }
  if (!problem) {
    problem = window_problem(config.model);
  }
  if (!problem) {
    problem = data_problem(config.data);
  }
  return problem ? problem : sweep_problem(config);
}

void check_config(const Config& config) {
  const std::optional<Problem> problem = find_problem(config);
  check_input(!problem, "[config] {}", problem ? problem->message : "");
}

void check_model(const ModelConfig& model) {
  Config config;
  config.model = model;
  check_config(config);
}

}  // namespace headroom::configs
