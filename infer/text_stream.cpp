// Holding back what might be a stop text or half a character.
#include "infer/text_stream.h"

#include <algorithm>

#include "tensor/check.h"

namespace headroom::infer {

namespace {

/// Bytes at the end of `text` with which `stop` could begin.
size_t beginning_of(const std::string& stop, std::string_view text) {
  for (size_t n = std::min(stop.size() - 1, text.size()); n > 0; --n) {
    if (text.ends_with(std::string_view(stop).substr(0, n))) {
      return n;
    }
  }
  return 0;
}

}  // namespace

TextStream::TextStream(std::vector<std::string> stops) : stops_(std::move(stops)) {
  for (const std::string& stop : stops_) {
    check_input(!stop.empty(), "[generate] --stop is empty: it would end every text at once");
  }
}

std::string TextStream::push(std::string_view bytes) {
  if (stopped_) {
    return "";
  }
  held_ += bytes;
  size_t found = std::string::npos, wait = 0;
  for (const std::string& stop : stops_) {
    found = std::min(found, held_.find(stop));
    wait = std::max(wait, beginning_of(stop, held_));
  }
  stopped_ = found != std::string::npos;
  const size_t ready = stopped_ ? found : held_.size() - wait;
  std::string shown = utf8_.push(std::string_view(held_).substr(0, ready));
  held_.erase(0, stopped_ ? held_.size() : ready);
  return shown;
}

std::string TextStream::finish() {
  std::string shown = utf8_.push(held_);
  held_.clear();
  return shown + utf8_.finish();
}

}  // namespace headroom::infer
