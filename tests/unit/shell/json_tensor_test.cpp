#include "shell/inputs/json_tensor.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstring>
#include <limits>

#include "base/random.hpp"
#include "shell/inputs/tensor.hpp"

namespace troupe::shell {
namespace {

using testing::HasSubstr;

proto::TensorSpec Declared(proto::DataType type, const std::vector<std::int64_t>& shape) {
  proto::TensorSpec spec;
  spec.set_name("x");
  spec.set_type(type);
  for (const auto size : shape) spec.add_shape(size);
  return spec;
}

// The tensor as "FP32 [1,2]", or the error.
std::string ReadJson(const std::string& text, const proto::TensorSpec& declared) {
  const auto tensor = ParseJsonTensor(text, declared);
  return tensor.ok() ? Describe(tensor->spec()) : std::string(tensor.status().message());
}

TEST(JsonTensor, NestedListsGiveTheShape) {
  EXPECT_EQ(ReadJson("[[1, 2.5], [3, 4e1]]", Declared(proto::FP32, {-1, 2})), "FP32 [2,2]");
  EXPECT_EQ(ReadJson("7", Declared(proto::INT64, {})), "INT64 []");
  EXPECT_EQ(ReadJson("[[], []]", Declared(proto::FP32, {-1, -1})), "FP32 [2,0]");
}

// As over HTTP.
TEST(JsonTensor, NumbersThatAreNotFinite) {
  const std::string text = "[NaN, Infinity,-Infinity , 1]";
  const auto read = ParseJsonTensor(text, Declared(proto::FP32, {4}));
  ASSERT_TRUE(read.ok()) << read.status();
  std::array<float, 4> values{};
  ASSERT_EQ(read->data().inlined().size(), sizeof(values));
  std::memcpy(values.data(), read->data().inlined().data(), sizeof(values));
  EXPECT_TRUE(std::isnan(values[0]));
  EXPECT_EQ(values[1], std::numeric_limits<float>::infinity());
  EXPECT_EQ(values[2], -std::numeric_limits<float>::infinity());
  for (const auto type : {proto::FP16, proto::BF16, proto::FP64})
    EXPECT_EQ(ReadJson(text, Declared(type, {4})), TypeName(type) + " [4]");
  EXPECT_THAT(ReadJson("[NaN]", Declared(proto::INT32, {1})),
              HasSubstr("NaN is not a valid value of type INT32"));
  EXPECT_THAT(ReadJson("[\"NaN\"]", Declared(proto::FP32, {1})), HasSubstr("\"NaN\" is not a valid value"));
  EXPECT_THAT(ReadJson("[1e39]", Declared(proto::FP32, {1})), HasSubstr("not a valid value"));
  const auto texts = ParseJsonTensor(R"(["NaN", "a\"NaN\\"])", Declared(proto::BYTES, {2}));
  ASSERT_TRUE(texts.ok()) << texts.status();
  EXPECT_THAT(texts->data().inlined(), testing::EndsWith("a\"NaN\\"));
}

TEST(JsonTensor, AFlatListTakesTheDeclaredShape) {
  EXPECT_EQ(ReadJson("[1,2,3,4,5,6]", Declared(proto::FP32, {-1, 3})), "FP32 [2,3]");
  EXPECT_EQ(ReadJson("[1,2,3,4,5,6]", Declared(proto::FP32, {2, 3})), "FP32 [2,3]");
  EXPECT_EQ(ReadJson("[1,2,3,4,5]", Declared(proto::FP32, {-1, 3})), "FP32 [5]")
      << "the check refuses it later";
  EXPECT_EQ(ReadJson("[1,2]", Declared(proto::FP32, {1LL << 62, 1LL << 62})), "FP32 [2]");
}

TEST(JsonTensor, AnObjectSaysTypeAndShape) {
  const auto declared = Declared(proto::FP32, {-1, 2});
  EXPECT_EQ(ReadJson(R"({"datatype": "INT32", "shape": [2, 2], "data": [1, 2, 3, 4]})", declared),
            "INT32 [2,2]");
  EXPECT_EQ(ReadJson(R"({"data": [[1, 2]]})", declared), "FP32 [1,2]");
  EXPECT_THAT(ReadJson(R"({"shape": [3], "data": [1, 2]})", declared),
              HasSubstr("asks for 3 elements; 2 are there"));
  EXPECT_THAT(ReadJson(R"({"shape": [4], "data": [[1, 2], [3, 4]]})", declared),
              HasSubstr("nested as [2,2]"));
  EXPECT_THAT(ReadJson(R"({"shape": [-1], "data": [1]})", declared), HasSubstr("negative"));
  EXPECT_THAT(ReadJson(R"({"datatype": "FLOAT", "data": [1]})", declared), HasSubstr("FLOAT"));
  EXPECT_THAT(ReadJson(R"({"shape": [1]})", declared), HasSubstr("lacks \"data\""));
}

TEST(JsonTensor, ValuesMustFitTheirType) {
  EXPECT_EQ(ReadJson("[true, false]", Declared(proto::BOOL, {2})), "BOOL [2]");
  EXPECT_EQ(ReadJson("[\"a\", \"\"]", Declared(proto::BYTES, {2})), "BYTES [2]");
  EXPECT_EQ(ReadJson("[255, 3.0]", Declared(proto::UINT8, {2})), "UINT8 [2]");
  EXPECT_EQ(ReadJson("[65504]", Declared(proto::FP16, {1})), "FP16 [1]");
  for (const auto& [text, type] :
       std::vector<std::pair<std::string, proto::DataType>>{{"[256]", proto::UINT8},
                                                            {"[-1]", proto::UINT64},
                                                            {"[1.5]", proto::INT32},
                                                            {"[1]", proto::BOOL},
                                                            {"[null]", proto::FP32},
                                                            {"[1e39]", proto::FP32},
                                                            {"[70000]", proto::FP16},
                                                            {"[1]", proto::BYTES},
                                                            {"[\"1\"]", proto::FP32},
                                                            {"[1e300]", proto::INT64}})
    EXPECT_THAT(ReadJson(text, Declared(type, {1})), HasSubstr("is not a valid value of type")) << text;
  const auto exact = ParseJsonTensor("[18446744073709551615]", Declared(proto::UINT64, {1}));
  ASSERT_TRUE(exact.ok());
  EXPECT_EQ(exact->data().inlined(), std::string(8, '\xFF'));
}

TEST(JsonTensor, CorruptTextIsRefused) {
  const auto declared = Declared(proto::FP32, {-1, 2});
  EXPECT_THAT(ReadJson("[[1, 2], [3]]", declared), HasSubstr("beside it"));
  EXPECT_THAT(ReadJson("[[1, 2], 3]", declared), HasSubstr("not nested evenly"));
  EXPECT_THAT(ReadJson("[1, [2]]", declared), HasSubstr("not nested evenly"));
  EXPECT_THAT(ReadJson("[1, 2", declared), HasSubstr("no valid JSON"));
  EXPECT_THAT(ReadJson("", declared), HasSubstr("no valid JSON"));
  EXPECT_THAT(ReadJson(std::string(100000, '['), declared), HasSubstr("no valid JSON"));
}

TEST(JsonTensor, WhatIsPrintedIsReadBack) {
  const auto declared = Declared(proto::FP32, {-1, 2});
  const auto tensor = ParseJsonTensor("[[0.1, -3e38], [1e-40, 7]]", declared);
  ASSERT_TRUE(tensor.ok());
  const auto again = ParseJsonTensor(TensorToJson(*tensor), Declared(proto::INT8, {1}));
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ(again->data().inlined(), tensor->data().inlined());
  EXPECT_EQ(JsonString("a\"\n\xFF"), "\"a\\\"\\n?\"");
}

TEST(JsonTensor, MutationsGiveErrorsOrTensorsThatAreWhole) {
  const std::string whole = R"({"datatype": "FP32", "shape": [2, 2], "data": [[1, 2.5], [-3, 4e1]]})";
  Random random(17);
  for (int round = 0; round < 20000; ++round) {
    std::string text = whole;
    for (std::uint64_t n = 1 + random.Below(3); n > 0; --n)
      text[random.Below(text.size())] = "0123456789[]{},.\"eE- "[random.Below(21)];
    const auto tensor = ParseJsonTensor(text, Declared(proto::FP32, {-1, 2}));
    if (!tensor.ok() || tensor->spec().type() == proto::BYTES) continue;
    const std::vector<std::int64_t> shape(tensor->spec().shape().begin(), tensor->spec().shape().end());
    ASSERT_EQ(*ElementCount(shape) * ElementSize(tensor->spec().type()), tensor->data().inlined().size())
        << text;
  }
}

}  // namespace
}  // namespace troupe::shell
