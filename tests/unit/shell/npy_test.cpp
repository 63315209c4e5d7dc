#include "shell/inputs/npy.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/random.hpp"
#include "shell/inputs/tensor.hpp"

namespace troupe::shell {
namespace {

using testing::HasSubstr;

std::string NpyFile(std::string header, const std::string& data, int major = 1) {
  header += '\n';
  std::string file("\x93NUMPY", 6);
  file += static_cast<char>(major);
  file += '\0';
  for (std::size_t i = 0; i < (major == 1 ? 2U : 4U); ++i)
    file += static_cast<char>(header.size() >> (8 * i) & 0xFF);
  return file + header + data;
}

std::string NpyHeader(const std::string& descr, const std::string& shape,
                      const std::string& fortran = "False") {
  return "{'descr': '" + descr + "', 'fortran_order': " + fortran + ", 'shape': " + shape + ", }          ";
}

std::string NpyError(const std::string& file) {
  return std::string(ParseNpy(file).status().message());
}

TEST(Npy, ReadsEveryTypeAndVersion) {
  for (const int major : {1, 2, 3}) {
    const auto tensor = ParseNpy(NpyFile(NpyHeader("<f4", "(2, 1)"), "12345678", major));
    ASSERT_TRUE(tensor.ok()) << tensor.status();
    EXPECT_EQ(Describe(tensor->spec()), "FP32 [2,1]");
    EXPECT_EQ(tensor->data().inlined(), "12345678");
  }
  for (const auto& [descr, type, size] :
       std::vector<std::tuple<std::string, proto::DataType, std::size_t>>{{"|b1", proto::BOOL, 1},
                                                                          {"|u1", proto::UINT8, 1},
                                                                          {"<u2", proto::UINT16, 2},
                                                                          {"<u4", proto::UINT32, 4},
                                                                          {"<u8", proto::UINT64, 8},
                                                                          {"|i1", proto::INT8, 1},
                                                                          {"<i2", proto::INT16, 2},
                                                                          {"<i4", proto::INT32, 4},
                                                                          {"<i8", proto::INT64, 8},
                                                                          {"<f2", proto::FP16, 2},
                                                                          {"<f8", proto::FP64, 8}}) {
    const auto tensor = ParseNpy(NpyFile(NpyHeader(descr, "(3,)"), std::string(3 * size, '\x01')));
    ASSERT_TRUE(tensor.ok()) << tensor.status();
    EXPECT_EQ(tensor->spec().type(), type);
  }
  EXPECT_TRUE(ParseNpy(NpyFile(NpyHeader("<i8", "()"), "12345678")).ok()) << "a scalar";
  EXPECT_TRUE(ParseNpy(NpyFile(NpyHeader("<i8", "(0, 5)"), "")).ok()) << "nothing";
}

TEST(Npy, RefusalsSayWhatToDo) {
  EXPECT_THAT(NpyError(NpyFile(NpyHeader("<f4", "(2, 2)", "True"), std::string(16, ' '))),
              HasSubstr("Fortran order"));
  EXPECT_TRUE(ParseNpy(NpyFile(NpyHeader("<f4", "(2,)", "True"), "12345678")).ok())
      << "an array of one dimension has one order";
  EXPECT_THAT(NpyError(NpyFile(NpyHeader(">f4", "(1,)"), "1234")), HasSubstr("big-endian"));
  EXPECT_THAT(NpyError(NpyFile(NpyHeader("<U4", "(1,)"), "1234")), HasSubstr("'<U4'"));
  EXPECT_THAT(NpyError(NpyFile(NpyHeader("<f4", "(3,)"), "12345678")),
              HasSubstr("takes 12 bytes; 8 are there"));
  EXPECT_THAT(NpyError(NpyFile(NpyHeader("<f4", "(1099511627776, 1099511627776)"), "")),
              HasSubstr("larger than"));
  EXPECT_THAT(NpyError(NpyFile(NpyHeader("<f4", "(99999999999999999999,)"), "")),
              HasSubstr("not a valid number"));
  EXPECT_THAT(NpyError(NpyFile(NpyHeader("<f4", "(-1,)"), "")), HasSubstr("not a valid number"));
  EXPECT_THAT(NpyError("PK\x03\x04"), HasSubstr("NUMPY"));
  EXPECT_THAT(NpyError(std::string("\x93NUMPY\x01\x00\xFF\xFF{", 11)), HasSubstr("inside of its header"));
  EXPECT_THAT(NpyError(NpyFile("{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (1,)}", "")),
              HasSubstr("records"));
}

TEST(Npy, WhatIsWrittenIsReadBack) {
  const auto tensor = ParseNpy(NpyFile(NpyHeader("<i2", "(2, 3)"), "abcdefghijkl"));
  const auto file = WriteNpy(*tensor);
  ASSERT_TRUE(file.ok());
  EXPECT_EQ((file->find('\n') + 1) % 64, 0U) << "the data begin aligned, as numpy wants";
  const auto again = ParseNpy(*file);
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ(again->SerializeAsString(), tensor->SerializeAsString());
  auto half = *MakeTensor(proto::BF16, {1}, std::string("\x80\x3F", 2));
  EXPECT_EQ(ParseNpy(*WriteNpy(half))->spec().type(), proto::FP32);
  half.mutable_spec()->set_type(proto::BYTES);
  EXPECT_FALSE(WriteNpy(half).ok());
}

TEST(Npy, MutationsGiveErrorsOrTensorsThatAreWhole) {
  const auto whole = NpyFile(NpyHeader("<f4", "(2, 3)"), std::string(24, 'x'));
  Random random(11);
  int accepted = 0;
  for (int round = 0; round < 20000; ++round) {
    auto file = whole.substr(0, random.Below(4) == 0 ? random.Below(whole.size() + 1) : whole.size());
    for (std::uint64_t n = random.Below(4); n > 0 && !file.empty(); --n)
      file[random.Below(file.size())] = static_cast<char>(random.Below(256));
    const auto tensor = ParseNpy(file);
    if (!tensor.ok()) continue;
    ++accepted;
    const std::vector<std::int64_t> shape(tensor->spec().shape().begin(), tensor->spec().shape().end());
    ASSERT_EQ(*ElementCount(shape) * ElementSize(tensor->spec().type()), tensor->data().inlined().size());
  }
  EXPECT_GT(accepted, 1000);
}

}  // namespace
}  // namespace troupe::shell
