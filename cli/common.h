// What every subcommand shares: the options they all have, how they print, and how CONFIG and RUN
// are read.
#pragma once

#include <cstdint>
#include <exception>
#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "configs/config.h"
#include "tensor/device.h"

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace headroom::cli {

/// Options that every command has, as given.
struct Common {
  std::vector<std::string> overrides;  // --set, in order
  bool json = false;
  bool quiet = false;
  std::optional<int64_t> threads;
  std::optional<Device> device;
  std::string profile;                          // the file of the trace; empty: no profile
  std::optional<configs::Precision> precision;  // only where add_precision() registered it
};

/// Registers what every command has. main() calls it.
void add_common_options(CLI::App& app, Common& common);
/// Registers --precision, for commands that compute. `usual` is what the help gives as the default.
void add_precision(CLI::App& app, Common& common, const std::string& usual);

/// An option that holds a whole number (or a number) from min to max; what is no such number is
/// refused with the option's name, what was given and the range. The help shows `value` as the
/// default unless `usual` says it in words.
CLI::Option* add_whole(CLI::App& app, const std::string& name, int64_t& value, int64_t min,
                       int64_t max, const std::string& help, const std::string& usual = "");
CLI::Option* add_number(CLI::App& app, const std::string& name, double& value, double min,
                        double max, const std::string& help);
/// An option that may be repeated, one value each; a following argument is never taken for another
/// value, and "[a,b]" stays as it is.
CLI::Option* add_repeated(CLI::App& app, const std::string& name, std::vector<std::string>& values,
                          const std::string& help, const std::string& value_name);

/// Sets the kernels' threads: --threads, else OMP_NUM_THREADS, else one per core; more than the
/// cores are capped with a note. main() calls it before every command.
void use_threads(const Common& common);
/// The same for a command whose config has train.threads: --threads and 0 leave things as they are.
void use_configured_threads(const Common& common, int64_t configured);

/// The reader of stdout has gone away (`headroom ... | head -1`): the program ends quietly with
/// status 0.
class ClosedPipe : public std::exception {};

/// Writes to stdout at once. Throws Error when that fails, ClosedPipe when nobody reads.
void print(std::string_view text);
/// Prints `json` indented by two, and a newline. Text that is not UTF-8 gets U+FFFD.
void print_json(const nlohmann::ordered_json& json);
/// Writes to stderr at once and never throws. False when nobody reads it any more; any other
/// failure of a log isn't worth ending for.
bool log(std::string_view text);
/// A line on stderr, "headroom: TEXT"; note() unless --quiet. A worker beside the first one puts
/// its number before the text, and print() is nothing there.
void complain(std::string_view text);
void note(const Common& common, std::string_view text);
void speak_as_worker(int64_t rank);

/// What a CONFIG, RUN or PRESET argument stands for.
struct ConfigArgument {
  configs::Config config;
  std::string name;           // "gqa", for headings
  std::filesystem::path run;  // the run's folder; empty for a config
  std::vector<std::string> notes;
};

/// Reads the argument and applies --set. It is, in this order: a folder or a .safetensors file (the
/// run's config.yaml), a config file, the name of a preset ("gqa", "configs/gqa.yaml"). Throws
/// InputError.
ConfigArgument read_config_argument(const std::string& argument, const Common& common);
/// The same, and prints the notes.
ConfigArgument load_config_argument(const std::string& argument, const Common& common);

/// The vocabulary where find_vocabulary() gives none: Tiny Shakespeare has 65 characters.
inline constexpr int64_t kUsualVocabulary = 65;
/// How many tokens the model of `argument` has: model.vocab_size where given, else the run's
/// tokenizer's, else what data.corpus gives (for bpe, the size asked for). Absent when a `char`
/// vocabulary has no corpus to come from.
std::optional<int64_t> find_vocabulary(const ConfigArgument& argument);

/// "8 query and 2 key/value heads of 32", or under mla "8 heads of 32 over a latent of 64 and 16
/// rotated"; then windows and learned sinks where there are any.
std::string attention_in_words(const configs::ModelConfig& model);

/// What --help ends with: an example, and the keys that --set takes where `keys` is true.
void set_footer(CLI::App& app, const std::string& examples, bool keys = false);

}  // namespace headroom::cli
