// One token per byte, id = value: any file, no training, 256 ids.
#pragma once

#include "text/tokenizer.h"

namespace headroom::text {

class ByteTokenizer : public Tokenizer {
 public:
  ByteTokenizer();
  std::string_view kind() const override { return "byte"; }
  std::vector<int32_t> encode(std::string_view text) const override;
  std::string to_json() const override;
};

}  // namespace headroom::text
