// The table and the Chrome trace of a profile.
#include "cli/profile.h"

#include <algorithm>
#include <exception>
#include <nlohmann/json.hpp>
#include <numeric>

#include "cli/common.h"
#include "cli/table.h"
#include "tensor/check.h"
#include "tensor/file.h"

namespace headroom::cli {
namespace {

using kernels::KernelTotal;
using kernels::PhaseTotal;

/// One phase's table: a column for each phase inside it and one for what is between them.
class PhaseTable {
 public:
  explicit PhaseTable(const PhaseTotal& phase) : phase_(phase) {
    for (const auto& inner : phase.phases) {
      add_kernels(*inner, walls_.size(), true);
      walls_.push_back(inner->ns);
    }
    add_kernels(phase, walls_.size(), false);
    walls_.push_back(phase.ns - sum(walls_));
    std::ranges::stable_sort(lines_, std::greater(), [](const Line& line) { return sum(line.ns); });
  }

  std::string text(int64_t whole_ns) const {
    const std::string times =
        phase_.calls == 1 ? "once" : fmt::format("{} times, each", phase_.calls);
    std::vector<Row> rows = {
        {fmt::format("{}: {} {} {}, {:.1f} % of the {:.2f} s", phase_.name, times,
                     number(per_occurrence(phase_.ns)), unit(), percent(phase_.ns, whole_ns),
                     static_cast<double>(whole_ns) / 1e9)}};
    if (lines_.empty()) {
      return aligned(rows);
    }
    rows.push_back(heading());
    std::vector<int64_t> outside = walls_;
    for (const Line& line : lines_) {
      rows.push_back(row(line.name, fmt::format("{:.5g}", calls_each(line.calls)), line.ns));
      for (size_t i = 0; i < outside.size() && i < line.ns.size(); ++i) {
        outside[i] -= line.ns[i];
      }
    }
    rows.push_back(row("outside kernels", "", outside));
    rows.push_back(row("all", "", walls_));
    return aligned(rows);
  }

 private:
  struct Line {
    const char* name;
    int64_t calls = 0;
    std::vector<int64_t> ns;  // per column; absent ones at the end are 0
  };

  static int64_t sum(const std::vector<int64_t>& values) {
    return std::accumulate(values.begin(), values.end(), int64_t{0});
  }
  static double percent(int64_t part, int64_t whole) {
    return whole > 0 ? 100.0 * static_cast<double>(part) / static_cast<double>(whole) : 0.0;
  }

  void add_kernels(const PhaseTotal& phase, size_t column, bool inner_ones_too) {
    for (const KernelTotal& kernel : phase.kernels) {
      auto line = std::ranges::find(lines_, std::string_view(kernel.name), &Line::name);
      if (line == lines_.end()) {
        line = lines_.insert(lines_.end(), Line{kernel.name, 0, {}});
      }
      line->calls += kernel.calls;
      line->ns.resize(std::max(line->ns.size(), column + 1));
      line->ns[column] += kernel.ns;
    }
    for (size_t i = 0; inner_ones_too && i < phase.phases.size(); ++i) {
      add_kernels(*phase.phases[i], column, true);
    }
  }

  /// Milliseconds, or microseconds for what is shorter than ten of them.
  bool in_ms() const { return phase_.ns >= 10'000'000 * phase_.calls; }
  const char* unit() const { return in_ms() ? "ms" : "µs"; }
  double calls_each(int64_t calls) const {
    return static_cast<double>(calls) / static_cast<double>(phase_.calls);
  }
  double per_occurrence(int64_t ns) const { return calls_each(ns) / (in_ms() ? 1e6 : 1e3); }
  std::string number(double value) const { return fmt::format("{:.{}f}", value, in_ms() ? 2 : 1); }

  Row heading() const {
    Row cells = {"  kernel", "calls"};
    for (const auto& inner : phase_.phases) {
      cells.emplace_back(inner->name);
    }
    if (!phase_.phases.empty()) {
      cells.emplace_back("between");
    }
    cells.emplace_back(unit());
    cells.emplace_back("%");
    return cells;
  }

  Row row(const std::string& name, const std::string& calls,
          const std::vector<int64_t>& columns) const {
    Row cells = {"  " + name, calls};
    for (size_t i = 0; walls_.size() > 1 && i < walls_.size(); ++i) {
      const int64_t ns = i < columns.size() ? columns[i] : 0;
      cells.push_back(ns == 0 ? "-" : number(per_occurrence(ns)));
    }
    cells.push_back(number(per_occurrence(sum(columns))));
    cells.push_back(fmt::format("{:.1f}", percent(sum(columns), phase_.ns)));
    return cells;
  }

  const PhaseTotal& phase_;
  std::vector<Line> lines_;
  std::vector<int64_t> walls_;  // nanoseconds of each column
};

double microseconds(int64_t ns) { return static_cast<double>(ns) / 1e3; }

nlohmann::ordered_json event_json(const kernels::TraceEvent& event) {
  nlohmann::ordered_json json = {{"name", event.name},
                                 {"cat", event.kernel ? "kernel" : "phase"},
                                 {"ph", "X"},
                                 {"ts", microseconds(event.begin_ns)},
                                 {"dur", microseconds(event.duration_ns)},
                                 {"pid", 1},
                                 {"tid", 1}};
  if (event.operands.count > 0) {
    json["args"] = {{"operands", kernels::to_string(event.operands)}};
  }
  return json;
}

void report(kernels::Trace& trace, const std::filesystem::path& file, const std::string& command,
            bool quiet) {
  if (!quiet) {
    log(profile_table(trace.totals()));
  }
  write_chrome_trace(trace, command, file);
  if (!quiet) {
    const std::string dropped =
        trace.dropped_events() == 0
            ? ""
            : fmt::format("; {} later ones are in the table only", trace.dropped_events());
    complain(fmt::format("{} events in {} (for ui.perfetto.dev or chrome://tracing){}",
                         trace.events().size(), file.string(), dropped));
  }
}

}  // namespace

std::string profile_table(const PhaseTotal& totals) {
  std::vector<const PhaseTotal*> phases;
  int64_t rest = totals.ns;
  for (const auto& phase : totals.phases) {
    if (phase->calls > 0) {  // else it was left by an exception before it had ended once
      phases.push_back(phase.get());
      rest -= phase->ns;
    }
  }
  std::ranges::stable_sort(phases, std::greater(), &PhaseTotal::ns);
  std::string text;
  for (const PhaseTotal* phase : phases) {
    text += PhaseTable(*phase).text(totals.ns);
  }
  return text + fmt::format("{}: {:.2f} s\n",
                            phases.empty() ? "no kernels ran in any phase" : "outside these phases",
                            static_cast<double>(rest) / 1e9);
}

void write_chrome_trace(const kernels::Trace& trace, const std::string& command,
                        const std::filesystem::path& file) {
  write_file(file, [&](const Append& append) {
    const auto write = [&append](const std::string& text) { append(text.data(), text.size()); };
    const nlohmann::ordered_json process = {{"name", "process_name"},
                                            {"ph", "M"},
                                            {"pid", 1},
                                            {"tid", 1},
                                            {"args", {{"name", command}}}};
    write(R"({"displayTimeUnit":"ms","otherData":{"dropped_events":)" +
          fmt::format("{}}},\"traceEvents\":[\n{}", trace.dropped_events(), process.dump()));
    for (const kernels::TraceEvent& event : trace.events()) {
      write(",\n" + event_json(event).dump());
    }
    write("\n]}\n");
  });
}

int profiled(const std::filesystem::path& file, const std::string& command, bool quiet,
             const std::function<int()>& work) {
  const std::filesystem::path folder = file.has_parent_path() ? file.parent_path() : ".";
  std::error_code ignored;
  check_input(std::filesystem::is_directory(folder, ignored), "--profile: there is no folder {}",
              folder.string());
  kernels::Trace trace;
  int status = 0;
  std::exception_ptr error;
  try {
    status = work();
  } catch (...) {
    error = std::current_exception();
  }
  const bool refused = error != nullptr && trace.totals().phases.empty();
  try {
    if (!refused) {
      report(trace, file, command, quiet);
    }
  } catch (const std::exception& e) {
    complain(e.what());
    status = std::max(status, 1);
  }
  if (error != nullptr) {
    std::rethrow_exception(error);
  }
  return status;
}

}  // namespace headroom::cli
