// Suggestions for mistyped words.
#include "configs/nearest.h"

#include <algorithm>
#include <vector>

namespace headroom::configs {
namespace {

constexpr size_t kLongestWord = 64;  // the table below is quadratic, and no key or flag is longer

std::string plain(std::string_view word) {
  word.remove_prefix(std::min(word.find_first_not_of('-'), word.size()));
  std::string out(word);
  for (char& c : out) {
    if (c >= 'A' && c <= 'Z') {
      c = static_cast<char>(c - 'A' + 'a');
    } else if (c == '-') {
      c = '_';
    }
  }
  return out;
}

bool begins_or_ends(const std::string& part, const std::string& whole) {
  if (part.size() < 3 || part.size() >= whole.size()) {
    return false;
  }
  const size_t rest = whole.size() - part.size();
  return (whole.starts_with(part) && whole[part.size()] == '_') ||
         (whole.ends_with(part) && whole[rest - 1] == '_');
}

}  // namespace

int edit_distance(std::string_view a, std::string_view b) {
  const size_t width = b.size() + 1;
  std::vector<int> table((a.size() + 1) * width);
  auto at = [&](size_t i, size_t j) -> int& { return table[i * width + j]; };
  for (size_t i = 0; i <= a.size(); ++i) {
    for (size_t j = 0; j <= b.size(); ++j) {
      if (i == 0 || j == 0) {
        at(i, j) = static_cast<int>(i + j);
        continue;
      }
      const int replace = at(i - 1, j - 1) + (a[i - 1] == b[j - 1] ? 0 : 1);
      at(i, j) = std::min({at(i - 1, j) + 1, at(i, j - 1) + 1, replace});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
        at(i, j) = std::min(at(i, j), at(i - 2, j - 2) + 1);
      }
    }
  }
  return at(a.size(), b.size());
}

std::string nearest(std::string_view word, std::span<const std::string> candidates) {
  const std::string wanted = plain(word);
  if (wanted.empty() || wanted.size() > kLongestWord) {
    return "";
  }
  std::string best;
  int best_distance = -1;
  for (const std::string& candidate : candidates) {
    const std::string offered = plain(candidate);
    int distance = edit_distance(wanted, offered);
    const int allowed =
        std::max<int>(1, static_cast<int>(std::max(wanted.size(), offered.size()) / 3));
    if (begins_or_ends(wanted, offered) || begins_or_ends(offered, wanted)) {
      distance = std::min(distance, 2);
    } else if (distance > allowed || distance >= static_cast<int>(offered.size())) {
      continue;
    }
    if (best_distance < 0 || distance < best_distance) {
      best = candidate;
      best_distance = distance;
    }
  }
  return best;
}

}  // namespace headroom::configs
