// The budgets of bytes by client address.
#include "gateway/transfer_budget.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <string>

namespace troupe::gateway {
namespace {

constexpr TransferBudget::SteadyTime kNow{std::chrono::hours(1)};

TEST(TransferBudget, AClientHasItsShareAndAllHaveTheTotal) {
  TransferBudget budget({Bytes(100), Bytes(60)});
  EXPECT_EQ(budget.Take("a", 60, kNow), TransferBudget::Verdict::kTaken);
  EXPECT_EQ(budget.Look("a"), TransferBudget::Verdict::kClientFull);
  EXPECT_EQ(budget.Take("a", 1, kNow), TransferBudget::Verdict::kClientFull);
  EXPECT_EQ(budget.Take("b", 41, kNow), TransferBudget::Verdict::kFull);
  EXPECT_EQ(budget.Take("b", 40, kNow), TransferBudget::Verdict::kTaken);
  EXPECT_EQ(budget.Look("c"), TransferBudget::Verdict::kFull);
  budget.Return("a", 60);
  EXPECT_EQ(budget.Look("a"), TransferBudget::Verdict::kTaken);
  EXPECT_EQ(budget.used(), Bytes(40));
}

TEST(TransferBudget, ASumThatWouldWrapIsRefused) {
  TransferBudget budget({Bytes(100), Bytes(100)});
  EXPECT_EQ(budget.Take("a", 50, kNow), TransferBudget::Verdict::kTaken);
  EXPECT_EQ(budget.Take("a", ~std::uint64_t{0} - 10, kNow), TransferBudget::Verdict::kFull);
  EXPECT_EQ(budget.used(), Bytes(50));
}

TEST(TransferBudget, IsShortForASecondAfterARefusal) {
  TransferBudget budget({Bytes(10), Bytes(10)});
  EXPECT_FALSE(budget.IsShort(kNow));
  EXPECT_EQ(budget.Take("a", 11, kNow), TransferBudget::Verdict::kFull);
  EXPECT_TRUE(budget.IsShort(kNow + std::chrono::milliseconds(999)));
  EXPECT_FALSE(budget.IsShort(kNow + std::chrono::seconds(1)));
}

TEST(TransferBudget, ReturningMoreThanWasTakenIsABug) {
  TransferBudget budget({Bytes(10), Bytes(10)});
  EXPECT_DEATH(budget.Return("a", 1), "more bytes were returned than were taken");
}

// Random charges: the sums are those of a plain model, and no share and no total is ever exceeded.
TEST(TransferBudget, AgreesWithAPlainModel) {
  std::mt19937 random(7);
  TransferBudget budget({Bytes(1000), Bytes(400)});
  std::map<std::string, std::uint64_t> held;
  const auto sum = [&] {
    std::uint64_t out = 0;
    for (const auto& [client, bytes] : held) out += bytes;
    return out;
  };
  for (int step = 0; step < 20'000; ++step) {
    const std::string client(1, static_cast<char>('a' + random() % 6));
    const std::uint64_t bytes = random() % 200;
    if (random() % 2 == 0) {
      const std::uint64_t back = std::min<std::uint64_t>(bytes, held[client]);
      budget.Return(client, back);
      held[client] -= back;
    } else {
      const bool total_fits = sum() + bytes <= 1000;
      const auto expected = bytes == 0                    ? TransferBudget::Verdict::kTaken
                            : !total_fits                 ? TransferBudget::Verdict::kFull
                            : held[client] + bytes <= 400 ? TransferBudget::Verdict::kTaken
                                                          : TransferBudget::Verdict::kClientFull;
      ASSERT_EQ(budget.Take(client, bytes, kNow), expected);
      if (expected == TransferBudget::Verdict::kTaken) held[client] += bytes;
    }
    ASSERT_EQ(budget.used().count(), sum());
  }
}

}  // namespace
}  // namespace troupe::gateway
