#include "gateway/tensor_json.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "base/random.hpp"
#include "gateway/tensor_type.hpp"
#include "tests/unit/gateway/fake_inference_service.hpp"

namespace troupe::gateway {
namespace {

absl::StatusOr<std::string> ReadTensor(std::string_view text, const proto::TensorSpec& spec) {
  JsonCursor cursor(text, true);
  const auto size = MeasureJsonTensor(cursor, spec);
  if (!size.ok()) return size.status();
  std::string out(size->count(), '\xee');
  if (absl::Status status = ReadJsonTensor(cursor, spec, std::as_writable_bytes(std::span(out)));
      !status.ok()) {
    return status;
  }
  if (!cursor.Finish()) return cursor.status();
  return out;
}

absl::StatusOr<std::string> WriteTensor(const std::string& bytes, const proto::TensorSpec& spec) {
  std::string out;
  if (absl::Status status = AppendJsonTensor(out, spec, std::as_bytes(std::span(bytes))); !status.ok())
    return status;
  return out;
}

template <typename T>
std::string Raw(std::vector<T> values) {
  return std::string(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T));
}

template <typename T>
void ExpectRange(proto::DataType type, const std::string& low, const std::string& high,
                 const std::vector<std::string>& bad) {
  const auto spec = Spec("x", type, {2});
  const auto read = ReadTensor("[" + low + "," + high + "]", spec);
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(*read, Raw<T>({std::numeric_limits<T>::lowest(), std::numeric_limits<T>::max()}))
      << TypeName(type);
  EXPECT_EQ(*WriteTensor(*read, spec), "[" + low + "," + high + "]");
  for (const std::string& one : bad) {
    EXPECT_FALSE(ReadTensor("[0," + one + "]", spec).ok()) << TypeName(type) << " " << one;
  }
}

TEST(TensorJson, EveryIntegerTypeHasItsRange) {
  ExpectRange<std::uint8_t>(proto::UINT8, "0", "255",
                            {"256", "-1", "1.0", "1e2", "\"1\"", "true", "null", "[1]"});
  ExpectRange<std::uint16_t>(proto::UINT16, "0", "65535", {"65536", "-1"});
  ExpectRange<std::uint32_t>(proto::UINT32, "0", "4294967295", {"4294967296", "-1"});
  ExpectRange<std::uint64_t>(proto::UINT64, "0", "18446744073709551615", {"18446744073709551616", "-1"});
  ExpectRange<std::int8_t>(proto::INT8, "-128", "127", {"128", "-129"});
  ExpectRange<std::int16_t>(proto::INT16, "-32768", "32767", {"32768", "-32769"});
  ExpectRange<std::int32_t>(proto::INT32, "-2147483648", "2147483647", {"2147483648", "-2147483649", "NaN"});
  ExpectRange<std::int64_t>(proto::INT64, "-9223372036854775808", "9223372036854775807",
                            {"9223372036854775808", "-9223372036854775809"});
}

TEST(TensorJson, FloatsRoundTripBitForBit) {
  Random random(3);
  std::vector<float> singles = {0.0F, -0.0F, 1e-45F, std::numeric_limits<float>::max(), 0.1F, 16777217.0F};
  std::vector<double> doubles = {0.1, 5e-324, std::numeric_limits<double>::max(), 1.7976931348623157e308,
                                 -0.0};
  while (singles.size() < 2000) {
    const auto bits = static_cast<std::uint32_t>(random());
    float value = 0;
    std::memcpy(&value, &bits, sizeof(value));
    if (std::isfinite(value)) singles.push_back(value);
  }
  while (doubles.size() < 2000) {
    const std::uint64_t bits = random();
    double value = 0;
    std::memcpy(&value, &bits, sizeof(value));
    if (std::isfinite(value)) doubles.push_back(value);
  }
  const auto single_spec = Spec("x", proto::FP32, {static_cast<std::int64_t>(singles.size())});
  const auto double_spec = Spec("x", proto::FP64, {static_cast<std::int64_t>(doubles.size())});
  EXPECT_EQ(*ReadTensor(*WriteTensor(Raw(singles), single_spec), single_spec), Raw(singles));
  EXPECT_EQ(*ReadTensor(*WriteTensor(Raw(doubles), double_spec), double_spec), Raw(doubles));
}

TEST(TensorJson, FloatsTakeIntegersAndTinyNumbersButNothingTooLarge) {
  const auto spec = Spec("x", proto::FP32, {4});
  EXPECT_EQ(*ReadTensor("[1, 1e-60, -1e-60, 3.4028235e38]", spec),
            Raw<float>({1.0F, 0.0F, -0.0F, std::numeric_limits<float>::max()}));
  const auto refused = ReadTensor("[1, 2, 3, 1e39]", spec);
  EXPECT_EQ(refused.status().message(), "input 'x': JSON: '1e39' is not a valid FP32 at byte 10");
  EXPECT_FALSE(ReadTensor("[1e309]", Spec("x", proto::FP64, {1})).ok());
  EXPECT_FALSE(ReadTensor("[true]", Spec("x", proto::FP64, {1})).ok());
}

TEST(TensorJson, NamesWhatIsNotFinite) {
  const auto spec = Spec("x", proto::FP64, {3});
  const auto read = ReadTensor("[NaN,Infinity,-Infinity]", spec);
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(*WriteTensor(*read, spec), "[NaN,Infinity,-Infinity]");
  EXPECT_EQ(*WriteTensor(Raw<float>({1.0F, 1.5F, 1e20F}), Spec("x", proto::FP32, {3})), "[1.0,1.5,1e+20]");
}

TEST(TensorJson, BoolsAreTrueFalseZeroOne) {
  const auto spec = Spec("x", proto::BOOL, {4});
  const auto read = ReadTensor("[true,false,1,0]", spec);
  EXPECT_EQ(*read, std::string("\1\0\1\0", 4));
  EXPECT_EQ(*WriteTensor(*read, spec), "[true,false,true,false]");
  EXPECT_FALSE(ReadTensor("[2,0,0,0]", spec).ok());
  EXPECT_FALSE(ReadTensor("[\"true\",0,0,0]", spec).ok());
}

TEST(TensorJson, BytesAreStrings) {
  const auto spec = Spec("x", proto::BYTES, {2, 1});
  const auto read = ReadTensor(R"([["h\u00e9"],[""]])", spec);
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(*read, std::string("\3\0\0\0h\xc3\xa9\0\0\0\0", 11));
  EXPECT_EQ(*WriteTensor(*read, spec), "[\"h\xc3\xa9\",\"\"]");
  EXPECT_FALSE(ReadTensor("[1,2]", spec).ok());
  const auto not_text = WriteTensor(std::string("\1\0\0\0\xff\0\0\0\0", 9), spec);
  EXPECT_EQ(not_text.status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(TensorJson, NestedArraysMustHaveTheShape) {
  const auto spec = Spec("x", proto::UINT8, {2, 3});
  const std::string expected("\1\2\3\4\5\6", 6);
  EXPECT_EQ(*ReadTensor("[[1,2,3],[4,5,6]]", spec), expected);
  EXPECT_EQ(*ReadTensor(" [ 1,2,3,4,5 , 6 ] ", spec), expected);
  for (const std::string_view bad :
       {"[[1,2],[3,4],[5,6]]", "[[1,2,3],[4,5]]", "[[1,2,3]]", "[[1,2,3],[4,5,6],[7]]", "[[[1,2,3],[4,5,6]]]",
        "[[1,2,3],4,5,6]", "[1,2,3,[4,5,6]]", "[1,2,3,4,5]", "[1,2,3,4,5,6,7]", "[]", "1", "{}",
        "[[1,2,3],[4,5,6]"}) {
    EXPECT_FALSE(ReadTensor(bad, spec).ok()) << bad;
  }
  EXPECT_EQ(ReadTensor("[1,2,3,4,5]", spec).status().message(),
            "input 'x': JSON: shape [2,3] has 6 elements in all, but \"data\" has 5 at byte 11");
}

TEST(TensorJson, EmptyAndScalarShapes) {
  EXPECT_EQ(*ReadTensor("[]", Spec("x", proto::FP32, {0})), "");
  EXPECT_EQ(*ReadTensor("[[],[]]", Spec("x", proto::FP32, {2, 0})), "");
  EXPECT_EQ(*ReadTensor("[5]", Spec("x", proto::UINT8, {})), "\5");
  EXPECT_FALSE(ReadTensor("[[5]]", Spec("x", proto::UINT8, {})).ok());
  EXPECT_EQ(*WriteTensor("", Spec("x", proto::BYTES, {0})), "[]");
}

TEST(TensorJson, AShapeThatTheTextCannotFillReservesNothing) {
  const auto status = ReadTensor("[1]", Spec("x", proto::FP64, {1LL << 40, 1LL << 20})).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_FALSE(ReadTensor("[1]", Spec("x", proto::FP64, {1LL << 40, 1LL << 40})).ok());
}

TEST(TensorJson, HalfFloatsHaveNoJsonForm) {
  for (const auto type : {proto::FP16, proto::BF16}) {
    EXPECT_EQ(ReadTensor("[1]", Spec("x", type, {1})).status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_FALSE(WriteTensor("ab", Spec("x", type, {1})).ok());
  }
}

TEST(TensorType, RawBytesAreChecked) {
  const auto check = [](const proto::TensorSpec& spec, const std::string& bytes) {
    return CheckRawTensor(spec, std::as_bytes(std::span(bytes))).ok();
  };
  EXPECT_TRUE(check(Spec("x", proto::FP16, {2}), "abcd"));
  EXPECT_FALSE(check(Spec("x", proto::FP16, {2}), "abc"));
  EXPECT_TRUE(check(Spec("x", proto::BOOL, {2}), std::string("\0\1", 2)));
  EXPECT_FALSE(check(Spec("x", proto::BOOL, {2}), std::string("\0\2", 2)));
  const auto strings = Spec("x", proto::BYTES, {2});
  EXPECT_TRUE(check(strings, std::string("\1\0\0\0a\0\0\0\0", 9)));
  EXPECT_FALSE(check(strings, std::string("\1\0\0\0a\0\0\0\0z", 10)));
  EXPECT_FALSE(check(strings, std::string("\1\0\0\0a\0\0\0", 8)));
  EXPECT_FALSE(check(strings, std::string("\xff\xff\xff\xff"
                                          "a\0\0\0\0",
                                          9)));
}

}  // namespace
}  // namespace troupe::gateway
