// The safetensors format byte by byte: what is written, and what is read back.
#include "tensor/safetensors.h"

#include <gtest/gtest.h>

#include <bit>
#include <cstring>
#include <limits>

#include "tests/run_program.h"
#include "tests/safetensors_bytes.h"

namespace headroom {
namespace {

namespace fs = std::filesystem;
using testing::file_of;
using testing::in_child;
using testing::limit_memory;
using testing::TemporaryFolder;

// ---- what is read ----

TEST(Safetensors, ReadsAFileWrittenByHand) {
  const TemporaryFolder folder;
  const std::string header =
      R"({"w":{"dtype":"F32","shape":[1,2],"data_offsets":[0,8]},)"
      R"("__metadata__":{"format":"pt","quote":"a\"\u00e9\n"},)"
      R"("i":{"shape":[],"data_offsets":[8,12],"dtype":"I32"},)"
      R"( "h" : { "dtype" : "BF16", "shape" : [ 1 ], "data_offsets" : [ 12, 14 ] } }     )";
  const std::string data("\x00\x00\x80\x3f\x00\x00\x20\xc0\xfe\xff\xff\xff\x40\x40", 14);
  write_file(folder / "x", file_of(header, data));
  const SafetensorsFile file(folder / "x");
  EXPECT_EQ(file.tensors().size(), 3U);
  EXPECT_EQ(file.read("w").shape(), (Shape{1, 2}));
  EXPECT_EQ(file.read("w").to_vector<float>(), (std::vector<float>{1.0F, -2.5F}));
  EXPECT_EQ(file.read("i").rank(), 0);
  EXPECT_EQ(file.read("i").item(), -2);
  EXPECT_EQ(file.read("h").item(), 3.0);
  EXPECT_EQ(file.metadata(),
            (std::map<std::string, std::string>{{"format", "pt"}, {"quote", "a\"\u00e9\n"}}));
  EXPECT_TRUE(file.has("h"));
  EXPECT_FALSE(file.has("__metadata__"));
}

TEST(Safetensors, ReadsTheSmallestFile) {
  const TemporaryFolder folder;
  write_file(folder / "x", file_of("{}"));
  EXPECT_TRUE(SafetensorsFile(folder / "x").tensors().empty());
}

TEST(Safetensors, AMissingTensorIsNamed) {
  const TemporaryFolder folder;
  write_file(folder / "x", file_of("{}"));
  const SafetensorsFile file(folder / "x");
  try {
    file.read("c.weight");
    FAIL();
  } catch (const InputError& e) {
    EXPECT_NE(std::string(e.what()).find("c.weight"), std::string::npos);
    EXPECT_NE(std::string(e.what()).find((folder / "x").string()), std::string::npos);
  }
}

TEST(Safetensors, ReadsOnFromTheFileThatWasChecked) {
  const TemporaryFolder folder;
  write_safetensors(folder / "x", {{"a", Tensor::from(std::vector<float>{1, 2}, {2})}}, {});
  const SafetensorsFile file(folder / "x");
  write_safetensors(folder / "x", {{"b", Tensor::from(std::vector<float>{3}, {1})}}, {});
  EXPECT_EQ(file.read("a").to_vector<float>(), (std::vector<float>{1, 2}));
  const SafetensorsFile cut(folder / "x");
  fs::resize_file(folder / "x", fs::file_size(folder / "x") - 1);
  EXPECT_THROW(cut.read("b"), InputError);
}

// ---- what is written ----

TEST(Safetensors, WritesTheFormatByteByByte) {
  const TemporaryFolder folder;
  write_safetensors(folder / "x",
                    {{"i", Tensor::from(std::vector<int8_t>{1, -1, 2}, {3})},
                     {"w", Tensor::from(std::vector<float>{1.0F, -2.5F}, {1, 2})}},
                    {{"step", "7"}, {"a", "\""}});
  // The wider type first, so that it is aligned; the header padded with spaces to 8 bytes.
  const std::string header = R"({"__metadata__":{"a":"\"","step":"7"},)"
                             R"("w":{"dtype":"F32","shape":[1,2],"data_offsets":[0,8]},)"
                             R"("i":{"dtype":"I8","shape":[3],"data_offsets":[8,11]}})"
                             "      ";
  ASSERT_EQ(header.size() % 8, 0U);
  EXPECT_EQ(read_file(folder / "x"),
            file_of(header, std::string("\x00\x00\x80\x3f\x00\x00\x20\xc0\x01\xff\x02", 11)));
}

TEST(Safetensors, EveryTypeAndShapeComesBackBitForBit) {
  const TemporaryFolder folder;
  const float nan = std::bit_cast<float>(0x7fc12345U);
  std::vector<bf16> halves;
  std::vector<f16> other_halves;
  for (int i = 0; i < 65536; ++i) {
    halves.push_back(std::bit_cast<bf16>(static_cast<uint16_t>(i)));
    other_halves.push_back(std::bit_cast<f16>(static_cast<uint16_t>(i)));
  }
  const std::vector<std::pair<std::string, Tensor>> tensors = {
      {"f64", Tensor::from(std::vector<double>{-0.0, 1e-310, 0.1, 1e300, -3, 4}, {3, 2})},
      {"f32", Tensor::from(std::vector<float>{nan, -std::numeric_limits<float>::infinity()}, {2})},
      {"bf16", Tensor::from(halves, {256, 256})},
      {"f16", Tensor::from(other_halves, {2, 2, 2, 2, 2, 2048})},
      {"i8", Tensor::from(std::vector<int8_t>{-128, 127, 0}, {3, 1})},
      {"i32", Tensor::from(std::vector<int32_t>{-2147483647 - 1}, {})},
      {"none", Tensor::empty({0, 5}, DType::f32)},
      {"a view \"\\\n\xc3\xa9", Tensor::from(std::vector<float>{0, 1, 2, 3}, {4}).rows(1, 3)}};
  const std::map<std::string, std::string> metadata = {{"", ""},
                                                       {"key\t", std::string("\0\x1f", 2)}};
  write_safetensors(folder / "x", tensors, metadata);
  const SafetensorsFile file(folder / "x");
  EXPECT_EQ(file.metadata(), metadata);
  EXPECT_EQ(file.tensors().size(), tensors.size());
  for (const auto& [name, tensor] : tensors) {
    const Tensor back = file.read(name);
    EXPECT_EQ(back.shape(), tensor.shape()) << name;
    EXPECT_EQ(back.dtype(), tensor.dtype()) << name;
    EXPECT_EQ(std::memcmp(back.raw(), tensor.raw(), tensor.nbytes()), 0) << name;
    EXPECT_EQ(file.tensors().at(name).begin % size_of(tensor.dtype()), 0U) << name;
  }
  write_safetensors(folder / "y", tensors, metadata);
  EXPECT_TRUE(read_file(folder / "x") == read_file(folder / "y"));
}

TEST(Safetensors, WhatTheFormatCannotHoldIsRefusedAndThePreviousFileStays) {
  const TemporaryFolder folder;
  const fs::path path = folder / "x";
  const Tensor one = Tensor::zeros({1}, DType::f32);
  write_safetensors(path, {{"a", one}}, {});
  const std::string previous = read_file(path);
  EXPECT_THROW(write_safetensors(path, {{"a", one}, {"a", one}}, {}), Error);
  EXPECT_THROW(write_safetensors(path, {{"__metadata__", one}}, {}), Error);
  EXPECT_THROW(write_safetensors(path, {{"a", Tensor()}}, {}), Error);
  EXPECT_THROW(write_safetensors(path, {{"\xff", one}}, {}), Error);
  EXPECT_THROW(write_safetensors(path, {{"a", one}}, {{"key", "\xc3"}}), Error);
  EXPECT_EQ(read_file(path), previous);
  EXPECT_EQ(std::distance(fs::directory_iterator(folder.path()), fs::directory_iterator()), 1);
}

TEST(Safetensors, WritingTakesNoSecondCopyOfTheData) {
  const TemporaryFolder folder;
  EXPECT_EQ(in_child([&] {
              const Tensor big = Tensor::zeros({48 << 20}, DType::i8);
              limit_memory(16 << 20);
              write_safetensors(folder / "x", {{"big", big}}, {});
              return fs::file_size(folder / "x") > (48U << 20) ? 0 : 1;
            }),
            0);
}

}  // namespace
}  // namespace headroom
