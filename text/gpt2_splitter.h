// Cuts text into the pieces within which BPE may merge, by the pattern of GPT-2 (openai/gpt-2,
// encoder.py): contractions, words, numbers, other signs, white space. What is a letter follows the
// Unicode version of the installed PCRE2 (14 in Debian 12): characters younger than that are signs
// here and letters for a library with newer tables.
#pragma once

#include <functional>
#include <memory>
#include <string_view>

struct pcre2_real_code_8;

namespace headroom::text {

class Gpt2Splitter {
 public:
  /// Compiles the pattern (PCRE2, UTF mode, JIT where the processor has it).
  Gpt2Splitter();

  /// Calls `piece` for each piece, in order; joined they are `text`. Bytes that are not valid UTF-8
  /// are pieces of their own, one per maximal run of such bytes; what stands between them is split
  /// as if it were a text by itself. Takes time linear in the text and constant memory and stack.
  void split(std::string_view text, const std::function<void(std::string_view)>& piece) const;

 private:
  void split_valid(std::string_view text, const std::function<void(std::string_view)>& piece) const;

  std::shared_ptr<pcre2_real_code_8> pattern_;
};

}  // namespace headroom::text
