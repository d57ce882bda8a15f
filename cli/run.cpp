#include "cli/run.h"

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <new>

#include "cli/commands.h"
#include "cli/profile.h"
#include "cli/usage.h"
#include "cli/workers.h"
#include "tensor/check.h"

namespace headroom::cli {
namespace {

struct Command {
  const char* name;  // one word or two
  const char* summary;
  Action (*add)(CLI::App& app, Common& common);
};

// clang-format off
const std::vector<Command> kCommands = {
    {"train", "train a model from a config", add_train},
    {"sweep", "the experiment: every n_kv_head with every seed, and the report", add_sweep},
    {"eval", "the exact loss of a trained model", add_eval},
    {"generate", "text from a trained model", add_generate},
    {"plan", "how large a model, its cache and its training are", add_plan},
    {"verify-cache", "prove that cached logits equal uncached ones", add_verify_cache},
    {"bench train", "how fast a training step is, beside this machine's peak", add_bench_train},
    {"bench roofline", "prefill and decode beside its arithmetic and memory", add_bench_roofline},
    {"bench latency", "the next token without a cache and with one", add_bench_latency},
    {"convert", "fewer KV heads from a trained model, to be uptrained", add_convert},
    {"analyze sinks", "attention mass on token 0, by layer and head", add_analyze_sinks},
    {"analyze window", "the loss under a window with and without sinks", add_analyze_window},
    {"analyze low-rank", "the loss against the rank of keys and values", add_analyze_low_rank},
    {"bench memory", "the cache's bytes as allocated, beside the formula", add_bench_memory},
    {"reproduce", "every exhibit of the study, beside the published figures", add_reproduce},
    {"tokenize", "the ids and pieces of a text", add_tokenize},
    {"inspect", "what a run folder or a checkpoint holds", add_inspect},
};
// clang-format on

std::string overview() {
  std::string text =
      "headroom trains GPTs that differ in their number of key/value heads, and puts the bytes of\n"
      "their KV cache beside their validation loss.\n\n"
      "Usage: headroom COMMAND [OPTIONS]\n\nCommands:\n";
  for (const Command& command : kCommands) {
    text += fmt::format("  {:<18}{}\n", command.name, command.summary);
  }
  return text +
         "\nheadroom COMMAND --help explains each, with an example and its defaults.\n"
         "headroom --version names the build and what it found in this machine.\n"
         "Exit status: 0 done; 1 it failed or a check disagrees; 2 bad usage or bad input.\n";
}

/// The command that `arguments` begin with, whose words are taken off them.
const Command& take_command(std::vector<std::string>& arguments) {
  const std::string name = arguments[0];
  const std::string two_words = name + (arguments.size() > 1 ? " " + arguments[1] : "");
  std::vector<std::string> names, kinds;
  for (const Command& command : kCommands) {
    const std::string each = command.name;
    if (each == name || each == two_words) {
      arguments.erase(arguments.begin(), arguments.begin() + (each == name ? 1 : 2));
      return command;
    }
    names.push_back(each);
    if (each.starts_with(name + " ")) {
      kinds.push_back(each.substr(name.size() + 1));
    }
  }
  if (!kinds.empty()) {
    throw InputError(
        fmt::format("headroom {} needs to know which: {}", name, fmt::join(kinds, " or ")));
  }
  if (name.starts_with("-")) {
    throw InputError(fmt::format(
        "'{}' stands before the command: options follow it (headroom --help lists the commands)",
        name));
  }
  throw InputError(fmt::format("no command '{}' (headroom --help lists them){}", name,
                               did_you_mean(name, names)));
}

int run_command(const Command& command, std::vector<std::string> arguments) {
  const std::string name = fmt::format("headroom {}", command.name);
  CLI::App app(command.summary, name);
  app.set_help_flag();  // add_common_options() registers it after the command's own options
  Common common;
  const Action action = command.add(app, common);
  add_common_options(app, common);
  check_option_names(app, arguments);
  try {
    std::reverse(arguments.begin(), arguments.end());  // CLI11 takes them from the back
    app.parse(arguments);
  } catch (const CLI::CallForHelp&) {
    print(app.help());
    return 0;
  } catch (const CLI::CallForVersion&) {
    use_threads(common);
    print(version_text());
    return 0;
  } catch (const CLI::ParseError& e) {
    throw InputError(fmt::format("{} ({} --help explains its usage)", e.what(), name));
  }
  share_command(command.name, common);
  use_threads(common);
  return common.profile.empty() ? action() : profiled(common.profile, name, common.quiet, action);
}

int run_words(std::vector<std::string> arguments) {
  if (!arguments.empty() && arguments[0] == "help") {  // "help plan" is "plan --help"
    arguments.erase(arguments.begin());
    arguments.emplace_back("--help");
  }
  if (arguments.empty() || arguments[0] == "--help" || arguments[0] == "-h") {
    print(overview());
    return 0;
  }
  if (arguments[0] == "--version") {
    use_threads({});
    print(version_text());
    return 0;
  }
  const Command& command = take_command(arguments);
  return run_command(command, std::move(arguments));
}

int guarded(std::vector<std::string> arguments) {
  try {
    join_workers();
    return run_words(std::move(arguments));
  } catch (const ClosedPipe&) {
    return 0;
  } catch (const InputError& e) {
    return fail(2, e.what());
  } catch (const std::bad_alloc&) {
    return fail(1,
                "out of memory: the system grants no more; a smaller model, batch or context needs "
                "less");
  } catch (const std::exception& e) {
    return fail(1, e.what());
  }
}

}  // namespace

int run(int count, char** words) {
  std::signal(SIGPIPE, SIG_IGN);  // a closed pipe is an error of the write: ClosedPipe
  std::signal(SIGXFSZ, SIG_IGN);  // so is a file larger than allowed
  const int status = guarded({words + std::min(count, 1), words + count});
  // Some file systems report a failed write only here.
  if (std::fclose(stdout) != 0 && errno != EBADF && status == 0) {
    complain("stdout can't be written");
    return 1;
  }
  return status;
}

}  // namespace headroom::cli
