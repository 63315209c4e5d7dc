// What a run knows of its tensors when nodes lose what they kept, and several steps read the same.
#include "actors/gateway/run_values.hpp"

#include <gtest/gtest.h>

#include <memory>
#include <string>

namespace troupe::actors {
namespace {

RunValue Kept(std::uint64_t number, bool stored) {
  RunValue value;
  value.kept.emplace().set_number(number);
  if (stored) value.stored.emplace();
  return value;
}

proto::WorkflowStep Reader() {
  proto::WorkflowStep step;
  step.set_name("reader");
  auto& binding = *step.add_inputs();
  binding.set_tensor("x");
  binding.set_value("one.out");
  return step;
}

class LostValues : public ::testing::Test {
 protected:
  [[nodiscard]] RunValues::Numbers Read() const { return values_.NumbersOf(Reader()); }

  RunValues values_;
};

TEST_F(LostValues, AreReadFromTheLogThatHasThemByEveryReader) {
  values_.Set("one.out", Kept(1, true));
  const auto first = Read(), second = Read();
  values_.Lost("one.out", first);
  ASSERT_TRUE(values_.Find("one.out").ok());
  EXPECT_TRUE(values_.Find("one.out")->OnlyInLog());
  values_.Lost("one.out", second);
  EXPECT_TRUE(values_.Find("one.out").ok())
      << "the second reader finds out what the first one has found out before";
}

TEST_F(LostValues, AreGoneWhenTheLogHasThemNotOrHasLostThemToo) {
  values_.Set("one.out", Kept(1, false));
  values_.Lost("one.out", Read());
  EXPECT_FALSE(values_.Find("one.out").ok());
  values_.Set("one.out", Kept(1, true));
  values_.Lost("one.out", Read());
  values_.Lost("one.out", Read());  // a reader that was to have it from the log
  EXPECT_FALSE(values_.Find("one.out").ok());
}

TEST_F(LostValues, ThatWereComputedAnewMeanwhileAreThere) {
  values_.Set("one.out", Kept(1, false));
  const auto first = Read(), second = Read();
  values_.Lost("one.out", first);
  values_.Set("one.out", Kept(2, false));
  values_.Lost("one.out", second);
  ASSERT_TRUE(values_.Find("one.out").ok());
  EXPECT_EQ(values_.Find("one.out")->kept->number(), 2u);
  values_.Lost("one.out", Read());
  EXPECT_FALSE(values_.Find("one.out").ok()) << "the new one is lost as well";
}

TEST_F(LostValues, WhoseBytesCameHereMeanwhileAreThere) {
  values_.Set("one.out", Kept(1, true));
  const auto late = Read();
  values_.Lost("one.out", Read());
  RunValue bytes;
  bytes.bytes = std::make_shared<const std::string>("abc");
  values_.Set("one.out", bytes);
  values_.Lost("one.out", late);
  ASSERT_TRUE(values_.Find("one.out").ok());
  EXPECT_EQ(*values_.Find("one.out")->bytes, "abc");
}

}  // namespace
}  // namespace troupe::actors
