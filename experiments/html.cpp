// Escaping text for HTML, tables, and the page around them.
#include "experiments/html.h"

#include <fmt/format.h>

#include "experiments/report_style.h"

namespace headroom::experiments {

std::string escaped(std::string_view text) {
  std::string html;
  for (const char c : text) {
    switch (c) {
      case '&':
        html += "&amp;";
        break;
      case '<':
        html += "&lt;";
        break;
      case '>':
        html += "&gt;";
        break;
      case '"':
        html += "&quot;";
        break;
      case '\'':
        html += "&#39;";
        break;
      default:
        // HTML knows no control characters but these.
        const bool control = static_cast<unsigned char>(c) < 0x20 && c != '\n' && c != '\t';
        html += control ? "\uFFFD" : std::string(1, c);
    }
  }
  constexpr std::string_view kPlusMinus = " ± ";
  for (size_t at = 0; (at = html.find(kPlusMinus, at)) != std::string::npos;) {
    html.replace(at, kPlusMinus.size(), "&nbsp;±&nbsp;");
  }
  return html;
}

std::string html_table(const char* kind, const std::vector<std::vector<Cell>>& rows) {
  std::string head;
  std::string body;
  for (const std::vector<Cell>& row : rows) {
    body += "<tr>";
    for (const Cell& cell : row) {
      body += fmt::format("<td class=\"{}\" data-label=\"{}\">{}</td>", cell.kind,
                          escaped(cell.label), cell.value);
    }
    body += "</tr>\n";
  }
  for (const Cell& cell : rows.front()) {
    head += fmt::format(
        "<th class=\"{}\" scope=\"col\">{}{}</th>", cell.kind, escaped(cell.label),
        cell.detail.empty() ? "" : fmt::format("<small>{}</small>", escaped(cell.detail)));
  }
  return fmt::format(
      "<table class=\"{}\"><thead><tr>{}</tr></thead>\n<tbody>\n{}</tbody></table>\n", kind, head,
      body);
}

std::string html_page(std::string_view title, std::string_view body) {
  return fmt::format(
      R"(<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<title>{}</title>
<style>{}</style>
</head>
<body><main>
{}</main></body>
</html>
)",
      escaped(title), kReportStyle, body);
}

}  // namespace headroom::experiments
