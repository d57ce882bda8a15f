// Okabe and Ito's colours, and axes without a frame.
#include "experiments/chart_style.h"

#include <fmt/format.h>

#include <array>

namespace headroom::experiments {

const ChartLook& chart_look(size_t i) {
  static constexpr std::array<ChartLook, 6> kLooks{{{"#0072b2", 7, "●"},
                                                    {"#d55e00", 5, "■"},
                                                    {"#009e73", 9, "▲"},
                                                    {"#cc79a7", 13, "◆"},
                                                    {"#e69f00", 11, "▼"},
                                                    {"#56b4e9", 15, "⬟"}}};
  return kLooks[i % kLooks.size()];
}

// Size and font are such that the text is at least 10 pixels high on a phone 390 pixels wide.
std::string chart_preamble(const std::string& xlabel, const std::string& ylabel) {
  return fmt::format(R"(set encoding utf8
set terminal svg size 480,350 dynamic font "sans-serif,14" noenhanced
set border 3 lc rgb "black" lw 0.8
set tics out nomirror scale 0.6
set xtics offset 0,0.35
set x2tics offset 0,-0.35
unset x2tics
unset key
set grid ytics lt 1 lc rgb "#8f8f8f" lw 0.3
set xlabel "{}" offset 0,0.7
set ylabel "{}" offset 0.5,0
set lmargin 9.5
set bmargin 3.2
set rmargin 1.5
set tmargin 1
set style fill transparent solid 0.16 noborder
)",
                     xlabel, ylabel);
}

}  // namespace headroom::experiments
