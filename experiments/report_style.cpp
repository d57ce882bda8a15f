// One column on a phone, where table rows become cards; two columns of charts on a wide screen;
// black on white in print.
#include "experiments/report_style.h"

namespace headroom::experiments {

const char* const kReportStyle = R"css(
:root { color-scheme: light dark; --ink: #1c1f23; --soft: #5b626b; --line: #d9dde2; --card: #f6f7f9;
        --page: #ffffff; --mark: #0072b2; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e8eaed; --soft: #a4abb4; --line: #3a4048; --card: #1f2328; --page: #15181c; --mark: #56b4e9; }
}
* { box-sizing: border-box; }
html { -webkit-text-size-adjust: 100%; text-size-adjust: 100%; }
body { margin: 0; overflow-wrap: break-word; background: var(--page); color: var(--ink);
       font: 16px/1.55 system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif; }
main { max-width: 1120px; margin: 0 auto; padding: 40px 32px 64px; }
h1 { font-size: 30px; line-height: 1.2; margin: 0 0 6px; letter-spacing: -0.01em; }
h2 { font-size: 20px; line-height: 1.3; margin: 48px 0 12px; }
p { margin: 0 0 12px; max-width: 800px; }
.about, .note, figcaption { color: var(--soft); font-size: 14px; line-height: 1.5; }
.finding { font-size: 19px; line-height: 1.5; margin: 24px 0 0; padding-left: 16px; border-left: 4px solid var(--mark); }
.whole { white-space: nowrap; }
.warning { margin: 20px 0 0; padding: 10px 14px; border: 1px solid #b35c00; border-radius: 6px; }
table { width: 100%; border-collapse: collapse; font-variant-numeric: tabular-nums; }
th { text-align: left; vertical-align: bottom; font-size: 13px; line-height: 1.35; font-weight: 600; color: var(--soft); }
th small { display: block; font-size: 12px; font-weight: 400; white-space: nowrap; }
th, td { padding: 9px 16px 9px 0; border-bottom: 1px solid var(--line); }
th:last-child, td:last-child { padding-right: 0; }
td { vertical-align: top; white-space: nowrap; }
td.words { white-space: normal; min-width: 11em; overflow-wrap: anywhere; }
th.number, td.number { text-align: right; }
table.narrow { width: auto; min-width: min(100%, 30em); }
table + .note { margin-top: 12px; }
table.figures td.number { white-space: nowrap; }
table.figures td:last-child { color: var(--soft); font-size: 14px; }
table + .why { margin-top: 14px; }
h2 code { color: var(--soft); font: 14px ui-monospace, SFMono-Regular, Menlo, Consolas, "DejaVu Sans Mono", monospace; }
nav ol { margin: 20px 0 0; padding-left: 1.6em; columns: 22em; }
a { color: var(--mark); }
.scroll { overflow-x: auto; }
.mark { display: inline-block; width: 1.5em; text-align: left; font-size: 0.85em; }
.legend { display: flex; flex-wrap: wrap; gap: 0 16px; margin: 0; font-size: 14px; }
.panels { display: grid; grid-template-columns: minmax(0, 1fr) minmax(0, 1fr); gap: 0 48px; align-items: start; }
.panels.stacked { grid-template-columns: minmax(0, 1fr); row-gap: 20px; }
.panels.stacked figure { max-width: 600px; }
.why + .panels { margin-top: 18px; }
details summary { cursor: pointer; color: var(--mark); margin-bottom: 8px; }
.samples { display: grid; grid-template-columns: minmax(0, 1fr) minmax(0, 1fr); gap: 20px 24px; }
figure { margin: 0; min-width: 0; break-inside: avoid; }
.samples h3 { font-size: 15px; line-height: 1.4; margin: 0 0 6px; }
figure svg { display: block; width: 100%; height: auto; }
figure svg g { font-family: inherit; }
figure svg :is([fill="black"], [fill="rgb(0,0,0)"]) { fill: var(--ink); }
figure svg :is([stroke="black"], [stroke="rgb(  0,   0,   0)"]) { stroke: var(--ink); }
figure svg use[color="white"] { color: var(--page); }
figcaption { margin-top: 6px; }
pre { margin: 0; padding: 14px 16px; background: var(--card); border: 1px solid var(--line); border-radius: 6px;
      font: 13px/1.5 ui-monospace, SFMono-Regular, Menlo, Consolas, "DejaVu Sans Mono", monospace;
      white-space: pre-wrap; overflow-wrap: anywhere; }
.samples pre { font-size: 14px; }
dl { display: grid; grid-template-columns: max-content 1fr; gap: 4px 20px; margin: 0 0 20px; }
dt { color: var(--soft); }
dd { margin: 0; overflow-wrap: anywhere; }
@media (max-width: 860px) { .panels, .samples { grid-template-columns: minmax(0, 1fr); } figure { max-width: 600px; } }
@media screen and (max-width: 760px) {
  main { padding: 24px 16px 48px; }
  h1 { font-size: 25px; }
  h2 { margin-top: 36px; }
  .finding { font-size: 17px; }
  table.cards, table.cards tbody, table.cards tr, table.cards td { display: block; width: 100%; }
  table.cards thead { display: none; }
  table.cards tr { padding: 10px 0; border-bottom: 1px solid var(--line); }
  table.cards tr:first-child { border-top: 1px solid var(--line); }
  table.cards td { display: flex; justify-content: space-between; gap: 16px; padding: 3px 0; border: 0;
                   text-align: right; white-space: normal; }
  table.cards td::before { content: attr(data-label); color: var(--soft); text-align: left; white-space: nowrap; }
  table.cards td:first-child { font-weight: 600; }
  table.cards td:first-child::before { color: var(--ink); }
  table.figures td:first-child, table.figures td:last-child { display: block; text-align: left; }
  table.figures td:first-child::before, table.figures td:last-child::before { content: none; }
  table.figures td:empty { display: none; }
  table.narrow { width: 100%; }
  table.narrow th, table.narrow td { padding-right: 8px; font-size: 14px; }
  table.narrow th { font-size: 12px; }
}
@media print {
  :root { --ink: #000000; --soft: #444444; --line: #bbbbbb; --card: #ffffff; --page: #ffffff; --mark: #0072b2; }
  @page { margin: 16mm 14mm; }
  body { font-size: 10pt; print-color-adjust: exact; -webkit-print-color-adjust: exact; }
  main { max-width: none; padding: 0; }
  h1 { font-size: 18pt; }
  h2 { font-size: 13pt; margin-top: 22pt; break-after: avoid; }
  h3 { break-after: avoid; }
  .finding { font-size: 12pt; }
  .about, .note, .legend, figcaption, th { font-size: 8.5pt; }
  th, td { padding: 5px 10px 5px 0; }
  td { font-size: 9pt; }
  .panels, .samples { grid-template-columns: 1fr 1fr; gap: 0 18pt; }
  .panels.stacked { grid-template-columns: 1fr; }
  .samples { row-gap: 10pt; }
  pre, .samples pre { padding: 8px 10px; font-size: 8pt; }
  .samples h3 { font-size: 10pt; }
  tr, dl, .samples > div { break-inside: avoid; }
}
)css";

}  // namespace headroom::experiments
