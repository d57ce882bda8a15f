// Suggestions for mistyped names, and the text of --version.
#include "cli/usage.h"

#include <CLI/App.hpp>

#include "configs/nearest.h"
#include "kernels/backend.h"
#include "kernels/threads.h"
#include "tensor/check.h"

namespace headroom::cli {
namespace {

/// "--context" of "--context=4096"; empty for what is no option: a value, "-", "--", "-5".
std::string option_name(const std::string& argument) {
  const bool is_option = argument.size() > 1 && argument[0] == '-' && argument != "--" &&
                         (argument[1] < '0' || argument[1] > '9');
  return is_option ? argument.substr(0, argument.find('=')) : "";
}

std::vector<std::string> long_names(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::Option* option : app.get_options()) {
    for (const std::string& name : option->get_lnames()) {
      names.push_back("--" + name);
    }
  }
  return names;
}

}  // namespace

std::string did_you_mean(std::string_view word, std::span<const std::string> candidates) {
  const std::string near = configs::nearest(word, candidates);
  return near.empty() ? "" : fmt::format(": did you mean '{}'?", near);
}

void check_option_names(const CLI::App& app, std::span<const std::string> arguments) {
  for (size_t i = 0; i < arguments.size() && arguments[i] != "--"; ++i) {
    const std::string name = option_name(arguments[i]);
    if (name.empty()) {
      continue;
    }
    const CLI::Option* option = app.get_option_no_throw(name);
    if (option == nullptr || !option->check_name(name)) {
      throw InputError(fmt::format("no option '{}' ({} --help lists them){}", name, app.get_name(),
                                   did_you_mean(name, long_names(app))));
    }
    const bool value_follows = option->get_items_expected_min() > 0 && name == arguments[i];
    i += value_follows ? 1 : 0;
  }
}

namespace {

/// What several workers may sum by.
std::string libraries_of_workers() {
  std::vector<std::string> names = {kernels::mpi_name().empty() ? "one: built without MPI"
                                                                : kernels::mpi_name()};
  if (std::string nccl = kernels::nccl_name(); !nccl.empty()) {
    names.push_back(std::move(nccl));
  }
  return fmt::format("{}", fmt::join(names, ", "));
}

}  // namespace

std::string version_text() {
  const int cores = kernels::available_cores();
  return fmt::format(
      "headroom {}\n"
      "backends      {}\n"
      "instructions  {}{}\n"
      "matmul        {}\n"
      "workers       {}\n"
      "threads       {} of {} core{}\n",
      HEADROOM_VERSION, fmt::join(kernels::backend_versions(), ", "), kernels::simd_name(),
      kernels::has_native_bf16() ? ", native bf16" : ", no native bf16", kernels::gemm_name(),
      libraries_of_workers(), kernels::threads(), cores, cores == 1 ? "" : "s");
}

}  // namespace headroom::cli
