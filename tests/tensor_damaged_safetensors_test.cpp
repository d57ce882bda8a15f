// Every way in which a damaged or hostile safetensors file is refused: with the file and the field
// named and little memory touched.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <random>

#include "tensor/safetensors.h"
#include "tests/run_program.h"
#include "tests/safetensors_bytes.h"

namespace headroom {
namespace {

namespace fs = std::filesystem;
using testing::file_of;
using testing::in_child;
using testing::limit_memory;
using testing::little_endian;
using testing::TemporaryFolder;

constexpr const char* kAccepted = "it was accepted";

/// "a" is f32 (2, 3) and "b" is i32 (2).
std::string good_header(const std::string& a_type = "F32", const std::string& a_shape = "[2,3]",
                        const std::string& a_offsets = "[0,24]",
                        const std::string& b_offsets = "[24,32]") {
  return R"({"a":{"dtype":")" + a_type + R"(","shape":)" + a_shape + R"(,"data_offsets":)" +
         a_offsets + R"(},"b":{"dtype":"I32","shape":[2],"data_offsets":)" + b_offsets + "}}";
}

std::string good_file() { return file_of(good_header(), std::string(32, '\x01')); }

/// The message of the InputError that `path` is refused with.
std::string refusal(const fs::path& path) {
  try {
    SafetensorsFile file(path);
    for (const auto& [name, info] : file.tensors()) file.read(name);
  } catch (const InputError& e) {
    return e.what();
  }
  return kAccepted;
}

struct Damage {
  std::string name;
  std::string bytes;
  std::vector<std::string> says;  // besides the file's name
};

void PrintTo(const Damage& damage, std::ostream* out) { *out << damage.name; }

std::vector<Damage> damaged_lengths() {
  const std::string good = good_file(), rest = good.substr(8);
  const uint64_t size = good.size();
  return {
      {"Empty", "", {"0 bytes"}},
      {"SevenBytes", good.substr(0, 7), {"7 bytes"}},
      {"CutByOne", good.substr(0, size - 1), {"\"b\"", "32", "31"}},
      {"CutInHalf", good.substr(0, size / 2), {"header length"}},
      {"Length0", little_endian(0) + rest, {"header length 0"}},
      {"Length2To63",
       little_endian(uint64_t{1} << 63) + rest,
       {"header length 9223372036854775808"}},
      {"LengthAllOnes", little_endian(~uint64_t{0}) + rest, {"header length 18446744073709551615"}},
      {"LengthPastTheFile",
       little_endian(size + 1) + rest,
       {"header length " + std::to_string(size + 1)}},
      {"LengthOneTooMuch", little_endian(size - 7) + rest, {"header length"}},
      {"TrailingBytes", good + "\x01", {"32", "33"}}};
}

std::vector<Damage> damaged_json() {
  const std::string a = R"("a":{"dtype":"I8","shape":[1],"data_offsets":[0,1]})";
  const auto header = [](const std::string& text) { return file_of(text, "\x01"); };
  return {{"NotJson", header("{hello}"), {"not JSON"}},
          {"Text", header("once upon a time"), {"JSON object", "\"o\""}},
          {"List", header("[" + a.substr(4) + "]"), {"JSON object", "\"[\""}},
          {"Number", header("17"), {"JSON object"}},
          {"Spaces", header("   {" + a + "}"), {"JSON object"}},
          {"Unfinished", header("{" + a), {"not JSON"}},
          {"TwoValues", header("{" + a + "}{}"), {"not JSON"}},
          {"NotUtf8", header("{\"\xff\":{}}"), {"not JSON"}},
          {"TensorIsAList", header(R"({"a":[1]})"), {"tensor \"a\"", "an object", "list"}},
          {"TensorIsNull", header(R"({"a":null})"), {"tensor \"a\"", "an object", "null"}},
          {"NameTwice", header("{" + a + "," + a + "}"), {"tensor \"a\"", "twice"}},
          {"FieldTwice",
           header(R"({"a":{"dtype":"I8","dtype":"I8","shape":[1],"data_offsets":[0,1]}})"),
           {"\"a\"", "dtype", "twice"}},
          {"NoType", header(R"({"a":{"shape":[1],"data_offsets":[0,1]}})"), {"\"a\"", "dtype"}},
          {"NoShape", header(R"({"a":{"dtype":"I8","data_offsets":[0,1]}})"), {"\"a\"", "shape"}},
          {"NoOffsets", header(R"({"a":{"dtype":"I8","shape":[1]}})"), {"\"a\"", "data_offsets"}},
          {"UnknownField",
           header(R"({"a":{"dtype":"I8","shape":[1],"data_offsets":[0,1],"strides":[1]}})"),
           {"\"a\"", "strides"}},
          {"TypeIsANumber", header(R"({"a":{"dtype":3}})"), {"\"a\"", "dtype", "string", "3"}},
          {"ShapeIsAString", header(R"({"a":{"shape":"1"}})"), {"\"a\"", "shape", "a list"}},
          {"ShapeIsNested", header(R"({"a":{"shape":[[1]]}})"), {"\"a\"", "shape", "list"}},
          {"MetadataIsAString", header(R"({"__metadata__":"x"})"), {"__metadata__", "an object"}},
          {"MetadataHoldsANumber",
           header(R"({"__metadata__":{"step":7}})"),
           {"__metadata__", "\"step\"", "a string", "7"}},
          {"MetadataIsNested",
           header(R"({"__metadata__":{"step":{}}})"),
           {"__metadata__", "\"step\"", "a string"}},
          {"MetadataTwice",
           header(R"({"__metadata__":{},"__metadata__":{}})"),
           {"__metadata__", "twice"}},
          {"MetadataKeyTwice",
           header(R"({"__metadata__":{"k":"1","k":"1"}})"),
           {"__metadata__", "\"k\"", "twice"}},
          {"DeepLists", header(R"({"a":)" + std::string(5000000, '[')), {"\"a\"", "an object"}},
          {"DeepObjects",
           header([] {
             std::string text;
             for (int i = 0; i < 1000000; ++i) text += R"({"a":)";
             return text;
           }()),
           {"\"a\""}}};
}

std::vector<Damage> damaged_fields() {
  const auto with = [](const std::string& type, const std::string& shape,
                       const std::string& a_offsets, const std::string& b_offsets = "[24,32]") {
    return file_of(good_header(type, shape, a_offsets, b_offsets), std::string(32, '\x01'));
  };
  const auto shape = [&](const std::string& text) { return with("F32", text, "[0,24]"); };
  const auto offsets = [&](const std::string& text) { return with("F32", "[2,3]", text); };
  const std::string a = "tensor \"a\"";
  return {{"BeginPastEnd", offsets("[24,0]"), {a, "begin at 24, past their end 0"}},
          {"EndPastTheFile", with("I8", "[24]", "[0,24]", "[25,33]"), {"\"b\"", "33", "32"}},
          {"EndFarPastTheFile",
           offsets("[0,18446744073709551615]"),
           {a, "data_offsets", "18446744073709551615"}},
          {"HugeAndConsistent",
           with("I8", "[4611686018427387904]", "[0,4611686018427387904]"),
           {a, "4611686018427387904", "32"}},
          {"OneOffset", offsets("[0]"), {a, "data_offsets", "1 numbers"}},
          {"NoOffset", offsets("[]"), {a, "data_offsets", "0 numbers"}},
          {"ThreeOffsets", offsets("[0,24,24]"), {a, "data_offsets", "more than 2"}},
          {"NegativeOffset", offsets("[-8,16]"), {a, "data_offsets", "-8"}},
          {"OffsetPast64Bits", offsets("[0,18446744073709551640]"), {a, "data_offsets"}},
          {"FractionOffset", offsets("[0,24.0]"), {a, "data_offsets", "24.0"}},
          {"ProductTooSmall", shape("[2,2]"), {a, "shape", "24 bytes", "4 elements"}},
          {"ProductTooLarge", shape("[2,4]"), {a, "shape", "24 bytes", "8 elements"}},
          {"ScalarShape", shape("[]"), {a, "shape", "24 bytes", "1 elements"}},
          {"ZeroElements", shape("[0,3]"), {a, "shape", "24 bytes", "0 elements"}},
          {"PartOfAnElement", with("F64", "[3]", "[0,25]", "[25,33]"), {a, "25 bytes"}},
          {"NegativeSize", shape("[-2,-3]"), {a, "shape", "-2"}},
          {"FractionSize", shape("[2,3.5]"), {a, "shape", "3.5"}},
          {"SizePast2To62", shape("[4611686018427387905]"), {a, "shape", "4611686018427387905"}},
          {"SizePast64Bits", shape("[18446744073709551622]"), {a, "shape"}},
          // In 64 bits these are 0 and 6 elements, and 0 bytes.
          {"ProductWraps", shape("[4294967296,4294967296]"), {a, "shape", "2^62"}},
          {"ProductWrapsToTheRightOne", shape("[11,1676976733973595602]"), {a, "shape", "2^62"}},
          {"BytesWrapToZero", with("F32", "[4611686018427387904]", "[0,0]"), {a, "0 bytes"}},
          {"ZeroHidesOverflow",
           with("F32", "[4294967296,4294967296,0]", "[0,0]", "[0,8]"),
           {a, "shape", "2^62"}},
          {"SevenAxes", shape("[1,1,1,1,1,2,3]"), {a, "shape", "more than 6"}},
          {"Overlap", with("F32", "[2,3]", "[0,24]", "[23,31]"), {"\"b\"", "23", "24"}},
          {"SameBytesTwice", with("I32", "[2]", "[0,8]", "[0,8]"), {"\"b\"", "inside another"}},
          {"Gap", with("I8", "[20]", "[0,20]"), {"\"b\"", "24", "20", "gap"}},
          {"GapAtTheStart", with("I8", "[20]", "[4,24]"), {a, "4", "gap"}},
          {"EmptyInsideAnother", with("F32", "[0]", "[28,28]", "[0,8]"), {a, "28", "gap"}},
          {"I64", with("I64", "[3]", "[0,24]"), {a, "dtype", "\"I64\"", "BF16"}},
          {"F8", with("F8_E4M3", "[24]", "[0,24]"), {a, "dtype", "\"F8_E4M3\""}},
          {"MadeUp", with("F99", "[2,3]", "[0,24]"), {a, "dtype", "\"F99\""}},
          {"LowerCase", with("f32", "[2,3]", "[0,24]"), {a, "dtype", "\"f32\""}},
          {"UnknownTypeAndWrongSize", with("BOOL", "[-1]", "[9,3]"), {a, "dtype", "\"BOOL\""}},
          {"LongNameIsCut",
           with(std::string(100000, 'x'), "[2,3]", "[0,24]"),
           {a, "dtype", "xxx\"..."}},
          {"ControlCharactersAreEscaped", with("\\u001b[2J", "[]", "[]"), {a, "\\u001b[2J"}}};
}

class Refused : public ::testing::TestWithParam<Damage> {};

TEST_P(Refused, NamingTheFileAndTheFieldWithinLittleMemory) {
  const TemporaryFolder folder;
  const fs::path path = folder / "damaged.safetensors";
  write_file(path, GetParam().bytes);
  EXPECT_EQ(in_child([&] {
              limit_memory(24 << 20);
              const std::string message = refusal(path);
              std::vector<std::string> expected = GetParam().says;
              expected.push_back(path.string());
              for (const std::string& part : expected) {
                if (message.find(part) == std::string::npos) {
                  std::fprintf(stderr, "\"%s\" lacks \"%s\"\n", message.c_str(), part.c_str());
                  return 1;
                }
              }
              return message.size() < 600 ? 0 : 2;
            }),
            0);
}

const auto kNameOf = [](const auto& info) { return info.param.name; };
INSTANTIATE_TEST_SUITE_P(Lengths, Refused, ::testing::ValuesIn(damaged_lengths()), kNameOf);
INSTANTIATE_TEST_SUITE_P(Json, Refused, ::testing::ValuesIn(damaged_json()), kNameOf);
INSTANTIATE_TEST_SUITE_P(Fields, Refused, ::testing::ValuesIn(damaged_fields()), kNameOf);

TEST(Safetensors, AHeaderOf120MegabytesIsRefusedBeforeItIsRead) {
  const TemporaryFolder folder;
  const fs::path path = folder / "x";
  write_file(path, little_endian(120'000'000) + "{");
  fs::resize_file(path, 8 + 120'000'000);  // a hole: nothing is on the disk
  EXPECT_EQ(in_child([&] {
              limit_memory(24 << 20);
              const std::string message = refusal(path);
              const bool named = message.find("120000000") != std::string::npos &&
                                 message.find("100000000") != std::string::npos;
              return named ? 0 : 1;
            }),
            0);
}

TEST(Safetensors, AHeaderOf90MegabytesIsReadWithin1Gigabyte) {
  const TemporaryFolder folder;
  const fs::path path = folder / "x";
  write_file(path,
             file_of(R"({"__metadata__":{"text":")" + std::string(90'000'000, 't') + R"("}})"));
  EXPECT_EQ(in_child([&] {
              limit_memory(1000 << 20);
              return SafetensorsFile(path).metadata().at("text").size() == 90'000'000 ? 0 : 1;
            }),
            0);
}

TEST(Safetensors, MoreEntriesThanMemoryHoldsAreRefused) {
#if defined(__SANITIZE_ADDRESS__)
  GTEST_SKIP() << "AddressSanitizer leaves no memory limit";
#endif
  const TemporaryFolder folder;
  const fs::path path = folder / "x";
  std::string header = R"({"__metadata__":{)";
  for (int i = 0; i < 1'000'000; ++i) header += "\"" + std::to_string(i) + R"(":"",)";
  write_file(path, file_of(header + R"("last":""}})"));
  EXPECT_EQ(in_child([&] {
              limit_memory(64 << 20);
              return refusal(path).find("memory") != std::string::npos ? 0 : 1;
            }),
            0);
}

TEST(Safetensors, EveryCutIsRefused) {
  const TemporaryFolder folder;
  const fs::path path = folder / "x";
  write_file(path, good_file());
  ASSERT_EQ(refusal(path), kAccepted);
  for (uint64_t size = good_file().size(); size-- > 0;) {
    fs::resize_file(path, size);
    EXPECT_NE(refusal(path).find(path.string()), std::string::npos) << size;
  }
}

// Whatever byte of the header changes, the file is read or refused: no other exception, no fault.
TEST(Safetensors, AnyChangedByteIsReadOrRefused) {
  const TemporaryFolder folder;
  const fs::path path = folder / "x";
  const std::string good = good_file();
  write_file(path, good);
  std::mt19937 random(5);
  int refused = 0;
  const int fd = ::open(path.c_str(), O_WRONLY);
  ASSERT_GE(fd, 0);
  for (size_t at = 0; at < good.size() - 32; ++at) {
    for (int trial = 0; trial < 8; ++trial) {
      const char changed = trial == 0 ? '9' : static_cast<char>(random());
      ASSERT_EQ(::pwrite(fd, &changed, 1, static_cast<off_t>(at)), 1);
      refused += refusal(path) != kAccepted;
      ASSERT_EQ(::pwrite(fd, &good[at], 1, static_cast<off_t>(at)), 1);
    }
  }
  ::close(fd);
  EXPECT_GT(refused, 100);
}

}  // namespace
}  // namespace headroom
