#include "scheduling/ordering_policy.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "base/random.hpp"
#include "scheduling/model_queue.hpp"

namespace troupe::ordering_policy_test {
namespace {

using std::chrono::milliseconds;
using testing::HasSubstr;

TEST(OrderingPolicy, KeysOrderByPriorityThenRankThenArrival) {
  const auto at = [](int ms) { return Time(milliseconds(ms)); };
  const Urgency early{.priority = 0, .arrival = at(1), .deadline = at(100)};
  const Urgency late{.priority = 0, .arrival = at(2), .deadline = at(50)};
  const Urgency urgent{.priority = 1, .arrival = at(9), .deadline = Time::max()};
  const OrderingPolicy edf = *FindOrderingPolicy("edf");
  const OrderingPolicy fifo = *FindOrderingPolicy("fifo");
  EXPECT_LT(MakeOrderingKey(edf, late, 2), MakeOrderingKey(edf, early, 1));
  EXPECT_LT(MakeOrderingKey(fifo, early, 1), MakeOrderingKey(fifo, late, 2));
  EXPECT_LT(MakeOrderingKey(edf, urgent, 3), MakeOrderingKey(edf, late, 2));
  EXPECT_LT(MakeOrderingKey(edf, late, 1), MakeOrderingKey(edf, late, 2));
  EXPECT_EQ(MakeOrderingKey(edf, late, 1).priority, kDefaultPriority);
  EXPECT_THAT(std::string(FindOrderingPolicy("lifo").status().message()),
              HasSubstr("edf, edf-late-last, edf-error-budget, fifo"));
}

TEST(ModelQueue, HeadsAreTheFirstOfEachModelWhateverHappens) {
  ModelQueue<std::uint64_t> queue;
  std::vector<std::pair<std::string, OrderingKey>> waiting;
  Random random(3);
  for (std::uint64_t i = 0; i < 5000; ++i) {
    if (waiting.empty() || random.Below(2) == 0) {
      const std::string model = std::to_string(random.Below(7));
      const OrderingKey key{.rank = static_cast<std::int64_t>(random.Below(50)), .sequence = i};
      queue.Add(model, key, i);
      waiting.emplace_back(model, key);
    } else {
      const std::size_t at = random.Below(waiting.size());
      queue.Remove(waiting[at].first, waiting[at].second);
      waiting.erase(waiting.begin() + static_cast<std::ptrdiff_t>(at));
    }
    ASSERT_EQ(queue.size(), waiting.size());
    std::map<std::string, OrderingKey> heads;
    for (const auto& [model, key] : waiting) {
      const auto [it, added] = heads.emplace(model, key);
      it->second = std::min(it->second, key);
    }
    ASSERT_EQ(queue.heads().size(), heads.size());
    for (const auto& head : queue.heads()) ASSERT_EQ(heads.at(head.model), head.key);
  }
  EXPECT_EQ(queue.Find("none"), nullptr);
}

}  // namespace
}  // namespace troupe::ordering_policy_test
