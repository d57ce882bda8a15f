// The options every command has, the threads it uses, and what it writes to stdout and stderr.
#include "cli/common.h"

#include <CLI/App.hpp>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <nlohmann/json.hpp>

#include "configs/print.h"
#include "configs/size.h"
#include "configs/value.h"
#include "kernels/threads.h"
#include "tensor/check.h"

namespace headroom::cli {
namespace {

int64_t worker = 0;  // of several, which this process is
std::string speaker = "headroom: ";

constexpr const char* kCommonGroup = "Options of every command";

template <class Number>
std::optional<Number> parse_number(const std::string& text) {
  Number value{};
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  return error == std::errc() && stop == end ? std::optional(value) : std::nullopt;
}

/// An option of type Number between min and max, handed to `set`.
template <class Number>
CLI::Option* add_ranged(CLI::App& app, const std::string& name, Number min, Number max,
                        const std::string& help, std::function<void(Number)> set) {
  const configs::Field range{name, "", static_cast<double>(min), static_cast<double>(max)};
  const std::string allowed = configs::allowed<Number>(range);
  const auto read = [=](const std::string& text) {
    const std::optional<Number> value = parse_number<Number>(text);
    check_input(value && *value >= min && *value <= max, "{} is {}, but must be {}", name, text,
                allowed);
    set(*value);
  };
  return app.add_option_function<std::string>(name, read, help)->type_name("N");
}

/// Sets the kernels' threads to `asked`, 0 for all cores. `source` names who asked.
void set_threads(const Common& common, int64_t asked, const std::string& source) {
  const int cores = kernels::available_cores();
  if (asked > cores) {
    note(common, fmt::format("{} {} is more than the {} core{} here: using {}", source, asked,
                             cores, cores == 1 ? "" : "s", cores));
    asked = cores;
  }
  kernels::set_threads(static_cast<int>(asked));
}

}  // namespace

void add_common_options(CLI::App& app, Common& common) {
  add_repeated(app, "--set", common.overrides,
               "a config key and its value in YAML (model.n_kv_head=4); may be repeated",
               "KEY=VALUE")
      ->group(kCommonGroup);
  app.add_flag("--json", common.json, "print the result as JSON")->group(kCommonGroup);
  add_ranged<int64_t>(app, "--threads", 0, 1024,
                      "CPU threads; 0: one per core [OMP_NUM_THREADS, else one per core]",
                      [&](int64_t value) { common.threads = value; })
      ->group(kCommonGroup);
  const auto read_device = [&](const std::string& name) {
    common.device = parse_device(name, "--device");
  };
  app.add_option_function<std::string>(
         "--device", read_device,
         "where to compute: cpu, cuda (the first GPU) or cuda:N (the N-th, counted from 0)")
      ->type_name("NAME")
      ->default_str("train.device")
      ->group(kCommonGroup);
  // A flag, so that it never takes the word after it for FILE; without one CLI11 calls it "true".
  app.add_flag("--profile", common.profile,
               "time every kernel: a table on stderr and, for ui.perfetto.dev, a trace in FILE "
               "[headroom-trace.json]")
      ->transform([](const std::string& text) {
        return text == "true" ? std::string("headroom-trace.json") : text;
      })
      ->type_name("[=FILE]")
      ->group(kCommonGroup);
  app.add_flag("--quiet", common.quiet, "nothing on stderr but errors")->group(kCommonGroup);
  app.set_version_flag("--version", std::string(), "print the version and what it runs on")
      ->group(kCommonGroup);
  app.set_help_flag("-h,--help", "print this")->group(kCommonGroup);
  for (CLI::Option* option : app.get_options()) {
    if (option->get_positional()) {
      option->type_name("");  // "RUN REQUIRED" in the help, not "RUN TEXT REQUIRED"
    }
  }
}

void add_precision(CLI::App& app, Common& common, const std::string& usual) {
  const auto read = [&common](const std::string& text) {
    for (const auto& [precision, name] : configs::spellings(configs::Precision{})) {
      if (name == text) {
        common.precision = precision;
        return;
      }
    }
    throw InputError(fmt::format("--precision is {}, but must be {}", text,
                                 configs::allowed<configs::Precision>({})));
  };
  app.add_option_function<std::string>("--precision", read,
                                       "fp32, bf16, or auto: bf16 where the device computes in it")
      ->type_name("NAME")
      ->default_str(usual);
}

CLI::Option* add_whole(CLI::App& app, const std::string& name, int64_t& value, int64_t min,
                       int64_t max, const std::string& help, const std::string& usual) {
  return add_ranged<int64_t>(app, name, min, max, help, [&value](int64_t given) { value = given; })
      ->default_str(usual.empty() ? fmt::format("{}", value) : usual);
}

CLI::Option* add_number(CLI::App& app, const std::string& name, double& value, double min,
                        double max, const std::string& help) {
  return add_ranged<double>(app, name, min, max, help, [&value](double given) { value = given; })
      ->type_name("X")
      ->default_str(configs::to_text(value));
}

CLI::Option* add_repeated(CLI::App& app, const std::string& name, std::vector<std::string>& values,
                          const std::string& help, const std::string& value_name) {
  return app.add_option(name, values, help)->type_name(value_name)->allow_extra_args(false);
}

void use_threads(const Common& common) {
  if (common.threads) {
    set_threads(common, *common.threads, "--threads");
    return;
  }
  // A list ("4,2") is for nested parallel regions, of which there are none.
  const char* variable = std::getenv("OMP_NUM_THREADS");
  const std::optional<int64_t> asked =
      variable == nullptr ? std::nullopt : parse_number<int64_t>(variable);
  set_threads(common, asked && *asked > 0 ? *asked : 0, "OMP_NUM_THREADS");
}

void use_configured_threads(const Common& common, int64_t configured) {
  if (!common.threads && configured != 0) {
    set_threads(common, configured, "train.threads");
  }
}

void speak_as_worker(int64_t rank) {
  worker = rank;
  speaker = fmt::format("headroom: worker {}: ", rank);
}

void print(std::string_view text) {
  if (worker > 0) {
    return;
  }
  errno = 0;
  if (std::fwrite(text.data(), 1, text.size(), stdout) == text.size() && std::fflush(stdout) == 0) {
    return;
  }
  const int reason = errno;
  if (reason == EPIPE) {
    throw ClosedPipe();
  }
  throw Error(fmt::format("stdout can't be written: {}", std::strerror(reason)));
}

void print_json(const nlohmann::ordered_json& json) {
  print(json.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + '\n');
}

bool log(std::string_view text) {
  errno = 0;
  const bool written =
      std::fwrite(text.data(), 1, text.size(), stderr) == text.size() && std::fflush(stderr) == 0;
  return written || errno != EPIPE;
}

void complain(std::string_view text) { log(fmt::format("{}{}\n", speaker, text)); }

void note(const Common& common, std::string_view text) {
  if (!common.quiet) {
    complain(text);
  }
}

std::string attention_in_words(const configs::ModelConfig& m) {
  std::string text = m.mla() ? fmt::format("{} heads of {} over a latent of {} and {} rotated",
                                           m.n_head, m.head_dim(), m.kv_rank(), m.rope_head_dim())
                             : fmt::format("{} query and {} key/value heads of {}", m.n_head,
                                           m.n_kv_head, m.head_dim());
  if (m.window > 0) {
    text += fmt::format(", a window of {} in {} of {} layers", m.window, configs::local_layers(m),
                        m.n_layer);
    text += m.sinks > 0 ? fmt::format(" with {} sinks", m.sinks) : "";
  }
  return text + (m.sink == configs::SinkKind::learned ? ", learned sinks" : "");
}

void set_footer(CLI::App& app, const std::string& examples, bool keys) {
  std::string text = "Example:\n" + examples;
  if (keys) {
    text += "\n\nConfig keys, with defaults (--set key=value, or a YAML file):\n" +
            configs::reference();
  }
  app.footer(text);
}

}  // namespace headroom::cli
