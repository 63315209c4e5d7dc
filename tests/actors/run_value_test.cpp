// One tensor of a run: its parts, its rows, and what the log says of where it is.
#include "actors/gateway/run_value.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <utility>

namespace troupe::actors {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr std::uint64_t kRow = 8;  // two floats

proto::TensorSpec Spec(std::int64_t rows, std::int64_t width = 2) {
  proto::TensorSpec spec;
  spec.set_name("y");
  spec.set_type(proto::FP32);
  spec.add_shape(rows);
  spec.add_shape(width);
  return spec;
}

RunValue Here(const std::string& bytes) {
  return {.spec = Spec(static_cast<std::int64_t>(bytes.size() / kRow)),
          .bytes = std::make_shared<const std::string>(bytes)};
}

RunValue Kept(std::uint64_t number, std::int64_t rows) {
  RunValue value{.spec = Spec(rows), .bytes = nullptr};
  value.kept.emplace();
  value.kept->set_node("node-" + std::to_string(number));
  value.kept->set_number(number);
  value.kept->set_length(static_cast<std::uint64_t>(rows) * kRow);
  return value;
}

TEST(RunValue, WhatIsHereIsJoinedHere) {
  const auto joined = JoinValues({Here("aaaaaaaa"), Here("bbbbbbbbcccccccc")}, 0);
  ASSERT_TRUE(joined.ok()) << joined.status();
  EXPECT_EQ(*joined->bytes, "aaaaaaaabbbbbbbbcccccccc");
  EXPECT_EQ(joined->spec.shape(0), 3);
  EXPECT_FALSE(joined->IsKept());
}

TEST(RunValue, WhatNodesKeepStaysInPartsAndNeighboursHereBecomeOne) {
  const auto joined = JoinValues({Here("aaaaaaaa"), Here("bbbbbbbb"), Kept(7, 3), Here(""), Kept(8, 1)}, 0);
  ASSERT_TRUE(joined.ok()) << joined.status();
  EXPECT_EQ(joined->spec.shape(0), 6);
  EXPECT_EQ(joined->bytes, nullptr);
  ASSERT_EQ(joined->parts.size(), 3u);
  EXPECT_EQ(*joined->parts[0].bytes, "aaaaaaaabbbbbbbb");
  EXPECT_EQ(joined->parts[1].kept->number(), 7u);
  EXPECT_EQ(joined->parts[2].kept->number(), 8u);
  EXPECT_EQ(joined->Size(), 6 * kRow);
  EXPECT_EQ(joined->KeptBytes(), 4 * kRow);
  const auto place = KeptPlaceOf(*joined);
  EXPECT_EQ(place.kept().node(), "node-7") << "the first that a node keeps";
  EXPECT_EQ(place.kept().length(), 6 * kRow);
  EXPECT_EQ(place.kept_parts(), 3u);
  auto released = *joined;
  released.Release();
  EXPECT_TRUE(released.OnlyInLog());
}

TEST(RunValue, OnePartIsNoJoin) {
  const auto joined = JoinValues({Here(""), Kept(7, 3)}, 0);
  ASSERT_TRUE(joined.ok()) << joined.status();
  EXPECT_THAT(joined->parts, IsEmpty());
  EXPECT_EQ(joined->kept->number(), 7u);
  EXPECT_EQ(KeptPlaceOf(*joined).kept_parts(), 0u);
}

TEST(RunValue, ARowIsAPartOfWhatHasIt) {
  const auto joined = JoinValues({Here("aaaaaaaabbbbbbbb"), Kept(7, 3), Kept(8, 1)}, 0);
  ASSERT_TRUE(joined.ok()) << joined.status();
  const auto row = [&](std::uint64_t index) { return RowOf(*joined, index, kRow, Spec(1)); };
  EXPECT_EQ(*row(1).bytes, "bbbbbbbb");
  const std::pair<std::uint64_t, std::uint64_t> expected[] = {{7, 0}, {7, kRow}, {7, 2 * kRow}, {8, 0}};
  for (std::uint64_t i = 0; i < 4; ++i) {
    const auto slice = row(2 + i);
    EXPECT_EQ(slice.kept->number(), expected[i].first);
    EXPECT_EQ(slice.kept->offset(), expected[i].second);
    EXPECT_EQ(slice.kept->length(), kRow);
  }
}

TEST(RunValue, PartsThatDoNotGoTogetherAreRefused) {
  auto wide = Kept(8, 1);
  wide.spec.set_shape(1, 3);
  EXPECT_EQ(JoinValues({Kept(7, 1), wide}, 0).status().code(), absl::StatusCode::kInvalidArgument);
  wide.kept->set_length(3 * sizeof(float));
  EXPECT_THAT(std::string(JoinValues({Kept(7, 1), wide}, 0).status().message()),
              HasSubstr("does not go with"));
  auto longer = Kept(7, 1);
  longer.kept->set_length(~std::uint64_t{0});  // a node's word, which no sum believes
  EXPECT_EQ(JoinValues({longer, Kept(8, 1)}, 0).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(JoinValues({Kept(7, 1), Kept(8, 1)}, 1).status().code(), absl::StatusCode::kInternal);
}

}  // namespace
}  // namespace troupe::actors
