#include "actors/core/job_lines.hpp"

#include <gtest/gtest.h>

#include <future>
#include <vector>

namespace troupe::actors {
namespace {

TEST(JobLines, JobsOfOneLineGoInTheirOrderAndThoseOfOthersBesideThem) {
  std::promise<void> go, ended;
  std::vector<int> done;  // by one job at a time
  WorkPool pool(2);
  JobLines lines(pool);
  ASSERT_TRUE(lines.Post("a", [&] { go.get_future().wait(); }).ok());
  for (int i = 0; i < 10; ++i) ASSERT_TRUE(lines.Post("a", [&done, i] { done.push_back(i); }).ok());
  ASSERT_TRUE(lines.Post("a", [&] { ended.set_value(); }).ok());
  // The line waits for this job of another one.
  ASSERT_TRUE(lines.Post("b", [&] { go.set_value(); }).ok());
  ended.get_future().wait();
  pool.Stop();
  EXPECT_EQ(done, (std::vector<int>{0, 1, 2, 3, 4, 5, 6, 7, 8, 9}));
}

TEST(JobLines, ALineThatIsTooLongTakesNothingAndGoesOnLater) {
  std::promise<void> go;
  std::promise<void> ended;
  WorkPool pool(1);
  JobLines lines(pool);
  ASSERT_TRUE(lines.Post("a", [&] { go.get_future().wait(); }).ok());
  for (std::size_t i = 2; i < JobLines::kLongest; ++i) ASSERT_TRUE(lines.Post("a", [] {}).ok());
  ASSERT_TRUE(lines.Post("a", [&] { ended.set_value(); }).ok());
  EXPECT_TRUE(absl::IsResourceExhausted(lines.Post("a", [] {})));
  go.set_value();
  ended.get_future().wait();
  std::promise<void> again;
  ASSERT_TRUE(lines.Post("b", [&] { again.set_value(); }).ok());
  again.get_future().wait();
  pool.Stop();
}

TEST(JobLines, APoolThatEndsTakesNothing) {
  WorkPool pool(1);
  JobLines lines(pool);
  pool.Stop();
  EXPECT_TRUE(absl::IsCancelled(lines.Post("a", [] {})));
  EXPECT_TRUE(absl::IsCancelled(lines.Post("a", [] {}))) << "the line did not stay busy";
}

}  // namespace
}  // namespace troupe::actors
