#include "shell/inputs/onnx_tensor.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>

#include "base/random.hpp"
#include "shell/inputs/files.hpp"
#include "shell/inputs/tensor.hpp"

namespace troupe::shell {
namespace {

using testing::HasSubstr;

// Fields of the wire format, small enough for lengths of one byte.
std::string WireVarint(int field, char value) {
  return {static_cast<char>(field << 3), value};
}
std::string WireBytes(int field, const std::string& bytes) {
  return std::string{static_cast<char>(field << 3 | 2), static_cast<char>(bytes.size())} + bytes;
}

std::string OnnxError(const std::string& file) {
  return std::string(ParseOnnxTensor(file).status().message());
}

TEST(OnnxTensor, ReadsRawData) {
  const auto tensor = ParseOnnxTensor(WireVarint(1, 2) + WireVarint(1, 1) + WireVarint(2, 1) +
                                      WireBytes(8, "x") + WireBytes(9, "12345678"));
  ASSERT_TRUE(tensor.ok()) << tensor.status();
  EXPECT_EQ(tensor->spec().name(), "x");
  EXPECT_EQ(Describe(tensor->spec()), "FP32 [2,1]");
  EXPECT_EQ(tensor->data().inlined(), "12345678");
}

TEST(OnnxTensor, ReadsTypedFieldsPackedAndNot) {
  const auto floats = ParseOnnxTensor(WireBytes(1, "\x02") + WireVarint(2, 1) + WireBytes(4, "12345678"));
  ASSERT_TRUE(floats.ok()) << floats.status();
  EXPECT_EQ(floats->data().inlined(), "12345678");
  const auto bytes =
      ParseOnnxTensor(WireBytes(1, "\x03") + WireVarint(2, 3) + WireVarint(5, 7) + WireBytes(5, "\x01\x02"));
  ASSERT_TRUE(bytes.ok()) << bytes.status();
  EXPECT_EQ(bytes->spec().type(), proto::INT8);
  EXPECT_EQ(bytes->data().inlined(), "\x07\x01\x02");
  const auto wide = ParseOnnxTensor(WireBytes(1, "\x01") + WireVarint(2, 7) + WireBytes(7, "\x05"));
  ASSERT_TRUE(wide.ok()) << wide.status();
  EXPECT_EQ(wide->data().inlined(), std::string("\x05\0\0\0\0\0\0\0", 8));
  const auto doubles = ParseOnnxTensor(WireBytes(1, "\x01") + WireVarint(2, 11) + WireBytes(10, "12345678"));
  ASSERT_TRUE(doubles.ok()) << doubles.status();
  const auto texts =
      ParseOnnxTensor(WireBytes(1, "\x02") + WireVarint(2, 8) + WireBytes(6, "ab") + WireBytes(6, ""));
  ASSERT_TRUE(texts.ok()) << texts.status();
  EXPECT_EQ(texts->spec().type(), proto::BYTES);
  EXPECT_EQ(texts->data().inlined().size(), 10U);
}

TEST(OnnxTensor, RefusesWhatIsCorruptOrElsewhere) {
  const auto head = WireVarint(1, 2) + WireVarint(2, 1);
  EXPECT_THAT(OnnxError(head + WireBytes(9, "1234")), HasSubstr("takes 8 bytes; 4 are there"));
  EXPECT_THAT(OnnxError(head + WireVarint(14, 1)), HasSubstr("another file"));
  EXPECT_THAT(OnnxError(head + WireBytes(13, "ab")), HasSubstr("another file"));
  EXPECT_THAT(OnnxError(WireVarint(2, 14)), HasSubstr("ONNX type 14")) << "complex numbers";
  EXPECT_THAT(OnnxError(head + "\x4A\x7F"
                               "12"),
              HasSubstr("cut short"));
  EXPECT_THAT(OnnxError(WireVarint(2, 8) + WireVarint(1, 3) + WireBytes(6, "a")),
              HasSubstr("3 strings; 1 are there"));
  EXPECT_FALSE(ParseOnnxTensor("").ok());
}

TEST(OnnxTensor, MutationsGiveErrorsOrTensorsThatAreWhole) {
  const auto whole = WireBytes(1, "\x02\x03") + WireVarint(2, 1) + WireBytes(8, "input") +
                     WireBytes(9, std::string(24, 'x'));
  Random random(13);
  int accepted = 0;
  for (int round = 0; round < 20000; ++round) {
    auto file = whole.substr(0, random.Below(4) == 0 ? random.Below(whole.size() + 1) : whole.size());
    for (std::uint64_t n = random.Below(4); n > 0 && !file.empty(); --n)
      file[random.Below(file.size())] = static_cast<char>(random.Below(256));
    const auto tensor = ParseOnnxTensor(file);
    if (!tensor.ok() || tensor->spec().type() == proto::BYTES) continue;
    ++accepted;
    const std::vector<std::int64_t> shape(tensor->spec().shape().begin(), tensor->spec().shape().end());
    ASSERT_EQ(*ElementCount(shape) * ElementSize(tensor->spec().type()), tensor->data().inlined().size());
  }
  EXPECT_GT(accepted, 1000);
}

TEST(OnnxTensor, ReadsTheReferenceOutputsOfRealNetworks) {
  const char* given = std::getenv("TROUPE_SHARED_DIR");
  const std::filesystem::path folder =
      std::filesystem::path(given != nullptr ? given : "../shared") / "models";
  if (!std::filesystem::is_directory(folder))
    GTEST_SKIP() << folder << " is not there; set TROUPE_SHARED_DIR";
  int read = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (entry.path().extension() != ".pb") continue;
    const auto content = ReadFile(entry.path().string(), MiB(64));
    ASSERT_TRUE(content.ok()) << content.status();
    const auto tensor = ParseOnnxTensor(*content);
    ASSERT_TRUE(tensor.ok()) << entry.path() << tensor.status();
    EXPECT_EQ(tensor->spec().type(), proto::FP32);
    ++read;
  }
  EXPECT_GT(read, 0);
}

}  // namespace
}  // namespace troupe::shell
