#include "infer/cache_spec.h"

#include <gtest/gtest.h>

#include "tensor/check.h"

namespace headroom::infer {
namespace {

TEST(CacheSpec, ReadsWhatItWrites) {
  for (const char* text :
       {"none", "static", "static,window=256", "static,window=256,sinks=4", "static,window=1",
        "static,dtype=int8", "static,k=int8", "static,k=int8,v=int4", "static,place=file",
        "static,window=9,sinks=1,dtype=f16,rotate=hadamard,place=host"}) {
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

std::string refusal_of(const std::string& text) {
  try {
    parse_cache_spec(text);
  } catch (const InputError& e) {
    return e.what();
  }
  return "";
}

TEST(CacheSpec, RefusesByNameWhatItDoesNotKnow) {
  const auto names = [](const std::string& text, const std::string& part) {
    const std::string message = refusal_of(text);
    EXPECT_NE(message.find("\"" + part + "\""), std::string::npos) << text << ": " << message;
    return message;
  };
  EXPECT_NE(names("dynamic", "dynamic").find("none, or static"), std::string::npos);
  EXPECT_NE(names("", "").find("none, or static"), std::string::npos);
  EXPECT_NE(names("static,places=int8", "places=int8").find("window=W, sinks=S, dtype=T"),
            std::string::npos);
  EXPECT_NE(names("static,dtype=int2", "int2").find("f32, bf16, f16, int8 or int4"),
            std::string::npos);
  names("static,dtype=f64", "f64");
  names("static,k=", "");
  EXPECT_NE(names("static,place=disk", "disk").find("memory, host or file"), std::string::npos);
  names("static,rotate=random", "random");
  EXPECT_NE(refusal_of("static,k=int8,dtype=int4").find("dtype beside k or v"), std::string::npos);
  EXPECT_NE(refusal_of("static,k=int8,k=int4").find("k is given twice"), std::string::npos);
  names("static,", "");
  names("static,window", "window");
  names("static,window=", "");
  names("static,window=-4", "-4");
  names("static,window=4x", "4x");
  names("static,window= 4", " 4");
  names("static,window=99999999999999999999", "99999999999999999999");
  names("static,window=2147483647", "2147483647");
  names("none,window=4", "none,window=4");
  EXPECT_NE(refusal_of("static,sinks=4").find("needs a window"), std::string::npos);
}

TEST(CacheSpec, ALatentHasOneTypeAndIsNotTurned) {
  configs::ModelConfig latent;
  latent.attention = configs::AttentionKind::mla;
  for (const char* text : {"static,k=int8", "static,k=int8,v=int4", "static,rotate=hadamard"}) {
    EXPECT_NO_THROW(check_cache_spec(parse_cache_spec(text), {}));
    EXPECT_THROW(check_cache_spec(parse_cache_spec(text), latent), InputError) << text;
  }
  EXPECT_NO_THROW(check_cache_spec(parse_cache_spec("static,dtype=int8,place=file"), latent));
}

TEST(CacheSpec, OnlyRoundingLoses) {
  EXPECT_TRUE(parse_cache_spec("static,window=8,rotate=hadamard,place=file").lossless(DType::f32));
  EXPECT_TRUE(parse_cache_spec("static,dtype=f32").lossless(DType::f32));
  EXPECT_TRUE(parse_cache_spec("static,dtype=bf16").lossless(DType::bf16));
  EXPECT_FALSE(parse_cache_spec("static,v=f16").lossless(DType::f32));
}

}  // namespace
}  // namespace headroom::infer
