// Exhibits as JSON, and their figures as text.
#include "experiments/exhibit_file.h"

#include <fmt/format.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "experiments/format.h"
#include "experiments/json_number.h"
#include "tensor/check.h"
#include "tensor/file.h"

namespace headroom::experiments {
namespace {

using Json = nlohmann::ordered_json;

std::optional<double> to_number(const Json& json) {
  return json.is_null() ? std::nullopt : std::optional(json.get<double>());
}

Json published_json(const ExhibitRow& row) {
  return row.published_to ? Json{number(row.published), number(row.published_to)}
                          : number(row.published);
}

Json row_json(const std::string& id, const ExhibitRow& row) {
  return {{"exhibit", id},
          {"figure", row.figure},
          {"published", published_json(row)},
          {"ours", number(row.ours)},
          {"unit", row.unit},
          {"note", note_text(row)}};
}

Json stored_row(const ExhibitRow& row) {
  return {{"figure", row.figure},
          {"published", number(row.published)},
          {"published_to", number(row.published_to)},
          {"ours", number(row.ours)},
          {"unit", row.unit},
          {"note", row.note}};
}

ExhibitRow to_row(const Json& json) {
  return {.figure = json.at("figure"),
          .published = to_number(json.at("published")),
          .published_to = to_number(json.at("published_to")),
          .ours = to_number(json.at("ours")),
          .unit = json.at("unit"),
          .note = json.at("note")};
}

std::string dumped(const Json& json) {
  return json.dump(1, ' ', false, Json::error_handler_t::replace) + "\n";
}

std::string with_unit(const std::string& text, const std::string& unit) {
  return unit.empty() ? text : text + " " + unit;
}

}  // namespace

void write_exhibit(const std::filesystem::path& file, const DoneExhibit& done) {
  const Exhibit& e = done.exhibit;
  Json rows = Json::array();
  for (const ExhibitRow& row : e.rows) rows.push_back(stored_row(row));
  write_file(file, dumped({{"id", e.id},
                           {"settings", done.settings},
                           {"seconds", done.seconds},
                           {"title", e.title},
                           {"setting", e.setting},
                           {"rows", rows},
                           {"table", e.table},
                           {"chart", e.chart},
                           {"legend", e.legend},
                           {"caption", e.caption},
                           {"why", e.why}}));
}

DoneExhibit read_exhibit(const std::filesystem::path& file) {
  const std::string text = read_file(file);
  try {
    const Json json = Json::parse(text);
    DoneExhibit done{.exhibit = {.id = json.at("id"),
                                 .title = json.at("title"),
                                 .setting = json.at("setting"),
                                 .rows = {},
                                 .table = json.at("table"),
                                 .chart = json.at("chart"),
                                 .legend = json.at("legend"),
                                 .caption = json.at("caption"),
                                 .why = json.at("why")},
                     .settings = json.at("settings"),
                     .seconds = json.at("seconds")};
    for (const Json& row : json.at("rows")) done.exhibit.rows.push_back(to_row(row));
    return done;
  } catch (const Json::exception& error) {
    throw InputError(
        fmt::format("{}: is not an exhibit's result: {}", file.string(), error.what()));
  }
}

std::string reproduction_json(const Reproduction& all) {
  Json rows = Json::array(), exhibits = Json::array();
  for (const DoneExhibit& done : all.exhibits) {
    const Exhibit& e = done.exhibit;
    for (const ExhibitRow& row : e.rows) rows.push_back(row_json(e.id, row));
    exhibits.push_back({{"id", e.id},
                        {"title", e.title},
                        {"setting", e.setting},
                        {"why", e.why},
                        {"table", e.table},
                        {"seconds", done.seconds}});
  }
  return dumped(
      {{"rows", rows},
       {"exhibits", exhibits},
       {"quick", all.quick},
       {"sweep", all.sweep},
       {"machine",
        {{"cpu", all.machine.cpu}, {"cores", all.machine.cores}, {"threads", all.machine.threads}}},
       {"finished", all.finished}});
}

std::string format_figure(double value) {
  if (!std::isfinite(value)) return "not a number";
  const double size = std::abs(value);
  if (size >= 1e7 || (size > 0 && size < 1e-3)) {
    const std::string text = fmt::format("{:.2e}", value);  // "3.57e+10"
    const size_t e = text.find('e');
    return fmt::format("{}e{}", text.substr(0, e), std::stoi(text.substr(e + 1)));
  }
  return size >= 1e4 || value == std::floor(value)
             ? format_count(static_cast<int64_t>(std::llround(value)))
             : fmt::format("{:.4g}", value);
}

std::string published_text(const ExhibitRow& row) {
  if (!row.published) return "–";
  const std::string from = format_figure(*row.published);
  return with_unit(row.published_to ? from + " to " + format_figure(*row.published_to) : from,
                   row.unit);
}

std::string ours_text(const ExhibitRow& row) {
  return row.ours ? with_unit(format_figure(*row.ours), row.unit) : "not measured";
}

std::string note_text(const ExhibitRow& row) {
  return row.ours ? row.note : "not measured: " + row.note;
}

}  // namespace headroom::experiments
