#include "actors/gateway/function_statistics.hpp"

#include <gtest/gtest.h>

namespace troupe::actors {
namespace {

using std::chrono::milliseconds;

proto::InferReply Reply(std::uint32_t batch_size, bool leads, int compute_ms) {
  proto::InferReply reply;
  reply.mutable_function()->set_name("f");
  reply.mutable_function()->set_version("1");
  reply.mutable_times()->set_compute_ns(Duration(milliseconds(compute_ms)).count());
  reply.mutable_times()->set_copy_ns(Duration(milliseconds(2)).count());
  reply.mutable_story()->set_batch_size(batch_size);
  reply.mutable_story()->set_leads_batch(leads);
  return reply;
}

TEST(FunctionStatistics, ARunIsCountedOnceHoweverManyRequestsItAnswers) {
  FunctionStatistics statistics;
  for (int run = 0; run < 2; ++run)
    for (int request = 0; request < 4; ++request)
      statistics.Observe(Reply(4, request == 0, 14), milliseconds(20), 1);
  statistics.Observe(Reply(1, true, 10), milliseconds(20), 1);
  statistics.Observe(Reply(0, false, 10), milliseconds(20), 1);  // of a node that does not say
  const auto f = statistics.Find("f", "1");
  EXPECT_EQ(f.inference_count, 10u);
  EXPECT_EQ(f.execution_count, 4u);
  ASSERT_EQ(f.batches.size(), 2u);
  EXPECT_EQ(f.batches.at(1).compute_infer.count, 2u);
  EXPECT_EQ(f.batches.at(4).compute_infer.count, 2u);
  EXPECT_EQ(f.batches.at(4).compute_infer.total, milliseconds(28));
  EXPECT_EQ(f.batches.at(4).compute_input.total, milliseconds(2));
  EXPECT_EQ(f.batches.at(4).compute_output.total, milliseconds(2));
  EXPECT_EQ(statistics.totals().batches, (std::map<std::uint32_t, std::uint64_t>{{1, 2}, {4, 2}}));
}

}  // namespace
}  // namespace troupe::actors
