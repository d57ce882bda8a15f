#include "infer/cache_spec.h"

#include <gtest/gtest.h>

#include "tensor/check.h"

namespace headroom::infer {
namespace {

TEST(CacheSpec, ReadsWhatItWrites) {
  for (const char* text :
       {"none", "static", "static,window=256", "static,window=256,sinks=4", "static,window=1"}) {
    EXPECT_EQ(to_string(parse_cache_spec(text)), text);
  }
  const CacheSpec spec = parse_cache_spec("static,sinks=4,window=256");
  EXPECT_FALSE(spec.recompute);
  EXPECT_EQ(spec.mask.window, 256);
  EXPECT_EQ(spec.mask.sinks, 4);
  EXPECT_TRUE(parse_cache_spec("none").recompute);
}

/// KVC-05: a window of 0 is no window.
TEST(CacheSpec, AWindowOfZeroIsNoWindow) {
  EXPECT_EQ(to_string(parse_cache_spec("static,window=0")), "static");
}

std::string refusal(const std::string& text) {
  try {
    parse_cache_spec(text);
  } catch (const InputError& e) {
    return e.what();
  }
  return "";
}

TEST(CacheSpec, RefusesByNameWhatItDoesNotKnow) {
  const auto names = [](const std::string& text, const std::string& part) {
    const std::string message = refusal(text);
    EXPECT_NE(message.find("\"" + part + "\""), std::string::npos) << text << ": " << message;
    return message;
  };
  EXPECT_NE(names("dynamic", "dynamic").find("none, or static"), std::string::npos);
  EXPECT_NE(names("", "").find("none, or static"), std::string::npos);
  EXPECT_NE(names("static,dtype=int8", "dtype=int8").find("window=W and sinks=S"),
            std::string::npos);
  names("static,", "");
  names("static,window", "window");
  names("static,window=", "");
  names("static,window=-4", "-4");
  names("static,window=4x", "4x");
  names("static,window= 4", " 4");
  names("static,window=99999999999999999999", "99999999999999999999");
  names("static,window=2147483647", "2147483647");
  names("none,window=4", "none,window=4");
  EXPECT_NE(refusal("static,sinks=4").find("needs a window"), std::string::npos);
}

}  // namespace
}  // namespace headroom::infer
