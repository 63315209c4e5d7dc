#include "base/tar.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace troupe {
namespace {

using testing::HasSubstr;

std::span<const std::byte> BytesOf(const std::string& text) {
  return std::as_bytes(std::span(text));
}

std::string Entry(const std::string& name, const std::string& content) {
  return TarHeader(name, content.size()) + content + std::string(TarPadding(content.size()), '\0');
}

std::string Refusal(const std::string& archive) {
  return std::string(ListTar(BytesOf(archive), 100).status().message());
}

// A header's type and name changed, with the sum made right again.
std::string Forged(std::string block, char type, const std::string& content) {
  block = TarHeader(block, content.size());
  block[156] = type;
  std::uint64_t sum = 0;
  for (std::size_t i = 0; i < block.size(); ++i)
    sum += i >= 148 && i < 156 ? ' ' : static_cast<unsigned char>(block[i]);
  std::string digits(6, '0');
  for (std::size_t i = 6; i-- > 0; sum >>= 3) digits[i] = static_cast<char>('0' + (sum & 7));
  block.replace(148, 6, digits);
  return block + content + std::string(TarPadding(content.size()), '\0');
}

TEST(Tar, FilesComeBackFromWhereTheyLie) {
  const std::string longer = std::string(150, 'd') + "/weights";
  const std::string archive = Entry("model.onnx", "graph") + Entry("empty", "") +
                              Entry(longer, std::string(600, 'w')) + Entry("block", std::string(512, 'b')) +
                              TarEnd();
  EXPECT_TRUE(IsTar(BytesOf(archive)));
  EXPECT_EQ(archive.size() % kTarBlock, 0u);
  const auto files = ListTar(BytesOf(archive), 100);
  ASSERT_TRUE(files.ok()) << files.status();
  ASSERT_EQ(files->size(), 4u);
  EXPECT_EQ((*files)[0].name, "model.onnx");
  EXPECT_EQ(archive.substr((*files)[0].offset, (*files)[0].size), "graph");
  EXPECT_EQ((*files)[1].size, 0u);
  EXPECT_EQ((*files)[2].name, longer);
  EXPECT_EQ(archive.substr((*files)[2].offset, (*files)[2].size), std::string(600, 'w'));
  EXPECT_EQ(archive.substr((*files)[3].offset, (*files)[3].size), std::string(512, 'b'));
}

TEST(Tar, SizesAboveWhatDigitsHold) {
  const std::uint64_t size = 9ull << 30;
  const auto header = TarHeader("large", size);
  EXPECT_EQ(header.size(), 3 * kTarBlock);
  // The bytes are not there: that the archive ends early says that the size was read.
  EXPECT_THAT(Refusal(header), HasSubstr("ends early"));
  EXPECT_THAT(Refusal(TarHeader("large", (8ull << 30) - 1)), HasSubstr("ends early"));
  std::string gnu = Forged("gnu", '0', "");
  std::string number(12, '\0');
  number[0] = static_cast<char>(0x80);
  number[11] = 3;
  gnu.replace(124, 12, number);
  std::uint64_t sum = 0;
  for (std::size_t i = 0; i < gnu.size(); ++i)
    sum += i >= 148 && i < 156 ? ' ' : static_cast<unsigned char>(gnu[i]);
  std::string digits(6, '0');
  for (std::size_t i = 6; i-- > 0; sum >>= 3) digits[i] = static_cast<char>('0' + (sum & 7));
  gnu.replace(148, 6, digits);
  const auto archive = gnu + "abc" + std::string(509, '\0') + TarEnd();
  const auto files = ListTar(BytesOf(archive), 100);
  ASSERT_TRUE(files.ok()) << files.status();
  EXPECT_EQ((*files)[0].size, 3u);
}

TEST(Tar, WhatIsNoFileIsLeftOut) {
  const auto archive =
      Forged("folder/", '5', "") + Forged("link", '2', "") + Forged("extended", 'g', "14 comment=x\n") +
      Forged("././@LongLink", 'L', "folder/" + std::string(120, 'n')) + Entry("short", "x") + TarEnd();
  const auto files = ListTar(BytesOf(archive), 100);
  ASSERT_TRUE(files.ok()) << files.status();
  ASSERT_EQ(files->size(), 1u);
  EXPECT_EQ((*files)[0].name, "folder/" + std::string(120, 'n'));
}

TEST(Tar, DamageIsRefused) {
  const auto good = Entry("model.onnx", std::string(600, 'x')) + TarEnd();
  for (std::size_t length = 1; length < 600 + 512; length += 7)
    EXPECT_THAT(Refusal(good.substr(0, length)), HasSubstr("ends early")) << length;
  auto damaged = good;
  damaged[3] = 'X';
  EXPECT_THAT(Refusal(damaged), HasSubstr("damaged at byte 0"));
  EXPECT_FALSE(IsTar(BytesOf(damaged)));
  EXPECT_FALSE(IsTar(BytesOf(good.substr(0, 511))));
  for (const std::string record :
       {"x", "99 path=a\n", "0 path=a\n", "11 path=a", "11 size=-1\n", "18446744073709551616 a=b\n"})
    EXPECT_FALSE(ListTar(BytesOf(Forged("extended", 'x', record) + good), 100).ok()) << record;
  EXPECT_THAT(Refusal(Forged("extended", 'x', "22 GNU.sparse.major=1\n") + good), HasSubstr("sparse"));
  EXPECT_THAT(Refusal(Forged("old", 'S', "") + good), HasSubstr("sparse"));
  std::string many;
  for (int i = 0; i < 101; ++i) many += Entry("f", "");
  EXPECT_THAT(Refusal(many), HasSubstr("more than 100 entries"));
}

}  // namespace
}  // namespace troupe
