// Progress on stderr: on a terminal one line that is painted over and fits its width; elsewhere
// full lines.
#pragma once

#include <string>

#include "cli/common.h"

namespace headroom::cli {

/// "1:02:03", "2:03".
std::string clock(double seconds);

class LiveLine {
 public:
  explicit LiveLine(const Common& common);
  ~LiveLine() { end(); }
  LiveLine(const LiveLine&) = delete;
  LiveLine& operator=(const LiveLine&) = delete;

  /// Whether stderr is a terminal: live() is for that case only.
  bool terminal() const { return terminal_; }
  /// A line that stays.
  void line(const std::string& text);
  /// Paints over the last live line; `brief` is for a terminal too narrow for `text`.
  void live(const std::string& text, const std::string& brief);
  /// What follows is written by somebody else: begins a new line if need be.
  void end();
  /// Whether whoever read stderr has gone.
  bool unread() const { return unread_; }

 private:
  void write(const std::string& text) { unread_ = !log(text) || unread_; }

  const Common& common_;
  const bool terminal_;
  bool live_ = false;
  bool unread_ = false;
};

}  // namespace headroom::cli
