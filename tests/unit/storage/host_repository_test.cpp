#include "storage/host_repository.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "base/random.hpp"

namespace troupe::storage {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr std::uint64_t kPageBytes = 4096;

std::vector<std::byte> Filled(std::uint64_t size, int with) {
  return std::vector<std::byte>(size, static_cast<std::byte>(with));
}

// A region of `pages` usable pages, and the view that a worker has of it.
class HostRepositoryTest : public testing::Test {
 protected:
  std::unique_ptr<HostRepository> Make(std::uint64_t pages) {
    transport::HostRegion::Options options;
    options.size = Bytes(pages * kPageBytes);
    auto region = transport::HostRegion::Create("host-repository-test", options);
    EXPECT_TRUE(region.ok()) << region.status();
    auto duplicate = transport::UniqueFd(::dup((*region)->fd()));
    auto view = transport::HostRegionView::Open(std::move(duplicate));
    EXPECT_TRUE(view.ok()) << view.status();
    view_ = std::make_unique<transport::HostRegionView>(*std::move(view));
    return std::make_unique<HostRepository>(*std::move(region));
  }
  bool Holds(const proto::RegionRange& range, int byte) const {
    const auto bytes = view_->Resolve(range);
    EXPECT_TRUE(bytes.ok()) << bytes.status();
    return std::all_of(bytes->begin(), bytes->end(),
                       [&](std::byte b) { return b == static_cast<std::byte>(byte); });
  }
  std::unique_ptr<transport::HostRegionView> view_;
};

TEST_F(HostRepositoryTest, AWorkerReadsWhatWasAdopted) {
  const auto repository = Make(16);
  const auto adopted = repository->Adopt("m", Filled(5000, 1), Filled(9000, 2));
  ASSERT_TRUE(adopted.ok()) << adopted.status();
  EXPECT_FALSE(adopted->present);
  const proto::HostCopy& copy = adopted->copy;
  EXPECT_EQ(copy.digest(), "m");
  EXPECT_EQ(copy.model().length(), 5000u);
  EXPECT_EQ(copy.weights().length(), 9000u);
  EXPECT_EQ(copy.model().offset() % kPageBytes, 0u);
  EXPECT_EQ(copy.weights().offset(), copy.model().offset() + 2 * kPageBytes);
  EXPECT_TRUE(Holds(copy.model(), 1));
  EXPECT_TRUE(Holds(copy.weights(), 2));
  EXPECT_EQ(repository->usage().used, Bytes(5 * kPageBytes));
  EXPECT_EQ(repository->region().used(), Bytes(5 * kPageBytes));
}

TEST_F(HostRepositoryTest, AdoptingTwiceIsOneCopy) {
  const auto repository = Make(16);
  const auto first = repository->Adopt("m", Filled(10, 1), Filled(10, 2));
  const auto second = repository->Adopt("m", Filled(10, 1), Filled(10, 2));
  EXPECT_TRUE(second->present);
  EXPECT_EQ(first->copy.SerializeAsString(), second->copy.SerializeAsString());
  EXPECT_TRUE(absl::IsInvalidArgument(repository->Adopt("m", Filled(11, 1), Filled(10, 2)).status()));
  EXPECT_EQ(repository->usage().models, 1u);
}

TEST_F(HostRepositoryTest, ModelsMayHaveNoWeights) {
  const auto repository = Make(4);
  ASSERT_TRUE(repository->Adopt("plain", Filled(10, 1), {}).ok());
  ASSERT_TRUE(repository->Adopt("nothing", {}, {}).ok());
  EXPECT_THAT(repository->List(), ElementsAre("nothing", "plain"));
}

TEST_F(HostRepositoryTest, WhenFullTheColdestGoesBackToDisk) {
  const auto repository = Make(4);
  ASSERT_TRUE(repository->Adopt("a", Filled(10, 1), Filled(10, 1)).ok());
  ASSERT_TRUE(repository->Adopt("b", Filled(10, 2), Filled(10, 2)).ok());
  EXPECT_TRUE(repository->Find("a").has_value());  // this counts as a use
  const auto adopted = repository->Adopt("c", Filled(10, 3), Filled(10, 3));
  ASSERT_TRUE(adopted.ok()) << adopted.status();
  EXPECT_THAT(adopted->evicted, ElementsAre("b"));
  EXPECT_THAT(repository->List(), ElementsAre("a", "c"));
  EXPECT_FALSE(repository->Find("b").has_value());
  EXPECT_EQ(repository->usage().evictions, 1u);
}

TEST_F(HostRepositoryTest, NothingLeavesWhileASwapReadsIt) {
  const auto repository = Make(4);
  ASSERT_TRUE(repository->Adopt("a", Filled(10, 1), Filled(10, 1)).ok());
  ASSERT_TRUE(repository->Adopt("b", Filled(10, 2), Filled(10, 2)).ok());
  ASSERT_TRUE(repository->Pin("a").ok());
  ASSERT_TRUE(repository->Pin("a").ok());
  ASSERT_TRUE(repository->Pin("b").ok());
  const absl::Status full = repository->Adopt("c", Filled(10, 3), {}).status();
  EXPECT_TRUE(absl::IsResourceExhausted(full)) << full;
  EXPECT_THAT(std::string(full.message()),
              HasSubstr("no room for 4 KiB in the host region of 16 KiB: 16 KiB are"));
  repository->Unpin("a");
  EXPECT_FALSE(repository->Adopt("c", Filled(10, 3), {}).ok());
  repository->Unpin("a");
  EXPECT_THAT(repository->Adopt("c", Filled(10, 3), {})->evicted, ElementsAre("a"));
  EXPECT_TRUE(absl::IsNotFound(repository->Pin("a").status()));
  EXPECT_TRUE(Holds(repository->Find("b")->weights(), 2));
}

TEST_F(HostRepositoryTest, WhatNeverFitsIsSaidSo) {
  const auto repository = Make(4);
  ASSERT_TRUE(repository->Adopt("a", Filled(10, 1), Filled(10, 1)).ok());
  for (const auto& [model, weights] : {std::pair(KiB(1), KiB(16)), std::pair(Bytes(UINT64_MAX), Bytes(1)),
                                       std::pair(Bytes(1), Bytes(UINT64_MAX)), std::pair(KiB(12), KiB(12))}) {
    const absl::Status status = repository->Reserve("large", model, weights).status();
    EXPECT_TRUE(absl::IsFailedPrecondition(status)) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr("never fits into the host region of 16 KiB"));
  }
  EXPECT_TRUE(repository->Has("a")) << "a model was evicted in vain";
}

TEST_F(HostRepositoryTest, WhatIsBeingFilledIsInvisibleAndStays) {
  const auto repository = Make(2);
  auto reservation = repository->Reserve("m", Bytes(10), Bytes(10));
  ASSERT_TRUE(reservation.ok());
  EXPECT_FALSE(repository->Find("m").has_value());
  EXPECT_THAT(repository->List(), IsEmpty());
  EXPECT_TRUE(absl::IsNotFound(repository->Pin("m").status()));
  EXPECT_TRUE(absl::IsUnavailable(repository->Reserve("m", Bytes(10), Bytes(10)).status()));
  EXPECT_TRUE(absl::IsResourceExhausted(repository->Reserve("other", Bytes(10), Bytes(10)).status()));
  std::fill(reservation->weights.begin(), reservation->weights.end(), std::byte{7});
  repository->Publish("m");
  EXPECT_TRUE(Holds(repository->Find("m")->weights(), 7));
  auto again = repository->Reserve("other", Bytes(10), Bytes(10));
  EXPECT_THAT(again->adoption.evicted, ElementsAre("m"));
  repository->Abandon("other");
  EXPECT_EQ(repository->usage().used, Bytes(0));
  EXPECT_EQ(repository->region().used(), Bytes(0));
}

TEST_F(HostRepositoryTest, ADiscardedModelGoesWithItsLastReader) {
  const auto repository = Make(4);
  ASSERT_TRUE(repository->Adopt("a", Filled(10, 1), Filled(10, 1)).ok());
  const auto copy = *repository->Pin("a");
  ASSERT_TRUE(repository->Discard("a").ok());
  EXPECT_FALSE(repository->Has("a"));
  EXPECT_TRUE(absl::IsNotFound(repository->Pin("a").status()));
  EXPECT_TRUE(absl::IsNotFound(repository->Discard("a")));
  EXPECT_TRUE(Holds(copy.weights(), 1));
  EXPECT_EQ(repository->usage().used, Bytes(2 * kPageBytes));
  repository->Unpin("a");
  EXPECT_EQ(repository->usage().used, Bytes(0));
  EXPECT_TRUE(absl::IsNotFound(repository->Discard("a")));
}

TEST_F(HostRepositoryTest, ADiscardedModelIsWantedAgainBeforeItsLastReaderHasGone) {
  const auto repository = Make(4);
  ASSERT_TRUE(repository->Adopt("a", Filled(10, 1), Filled(10, 1)).ok());
  ASSERT_TRUE(repository->Pin("a").ok());
  ASSERT_TRUE(repository->Discard("a").ok());
  EXPECT_TRUE(repository->Adopt("a", Filled(10, 1), Filled(10, 1))->present);
  repository->Unpin("a");
  EXPECT_TRUE(repository->Has("a"));
}

TEST_F(HostRepositoryTest, DiscardedWhileFilledItGoesWhenPublished) {
  const auto repository = Make(4);
  ASSERT_TRUE(repository->Reserve("a", Bytes(10), Bytes(10)).ok());
  ASSERT_TRUE(repository->Discard("a").ok());
  repository->Publish("a");
  EXPECT_EQ(repository->usage().models, 0u);
  EXPECT_EQ(repository->region().used(), Bytes(0));
}

using HostRepositoryDeathTest = HostRepositoryTest;
// The region has more pages than a machine reserves: it is made of normal pages, and nothing else is
// different.
TEST(HostRepository, HugePagesThatAreRefusedAreNotMissed) {
  auto region = transport::HostRegion::Create("refused", {.size = GiB(256), .huge_pages = true});
  ASSERT_TRUE(region.ok()) << region.status();
  if ((*region)->huge_pages()) GTEST_SKIP() << "this machine has 256 GiB of huge pages";
  EXPECT_EQ((*region)->capacity(), GiB(256));
  HostRepository repository(*std::move(region));
  const std::vector<std::byte> weights(100'000, std::byte{7});
  const auto adopted = repository.Adopt("digest", std::span(weights).first(100), weights);
  ASSERT_TRUE(adopted.ok()) << adopted.status();
  EXPECT_EQ(adopted->copy.weights().length(), 100'000u);
}

TEST_F(HostRepositoryDeathTest, MisuseIsABug) {
  const auto repository = Make(4);
  ASSERT_TRUE(repository->Adopt("a", Filled(10, 1), {}).ok());
  EXPECT_DEATH(repository->Unpin("a"), "only what was pinned");
  EXPECT_DEATH(repository->Unpin("b"), "only what was pinned");
  EXPECT_DEATH(repository->Publish("a"), "only what was reserved");
  EXPECT_DEATH(repository->Abandon("a"), "only what was reserved");
}

// The test's own record of each model that it can find.
struct Belief {
  std::uint64_t model;
  std::uint64_t weights;
  int pins = 0;
};

TEST_F(HostRepositoryTest, UnderRandomChurnBytesStayWholeAndTheAccountingCloses) {
  const auto repository = Make(64);
  Random random(7);
  std::map<std::string, Belief> beliefs;
  int refused = 0;
  const auto byte_of = [](const std::string& digest) { return std::stoi(digest) % 251; };
  const auto pick = [&]() -> std::string {
    return beliefs.empty()
               ? ""
               : std::next(beliefs.begin(), static_cast<long>(random.Below(beliefs.size())))->first;
  };
  for (int step = 0; step < 20000; ++step) {
    const std::string chosen = pick();
    switch (random.Below(7)) {
      case 0:
      case 1: {
        const std::string digest = std::to_string(random.Below(40));
        const bool known = beliefs.contains(digest);
        const Belief fresh{random.Below(6000), random.Below(60000)};
        const Belief& wanted = known ? beliefs[digest] : fresh;
        const auto adopted = repository->Adopt(digest, Filled(wanted.model, byte_of(digest)),
                                               Filled(wanted.weights, byte_of(digest)));
        refused += !adopted.ok();
        if (!adopted.ok()) {
          ASSERT_TRUE(absl::IsResourceExhausted(adopted.status())) << adopted.status();
          break;
        }
        ASSERT_EQ(adopted->present, known);
        for (const std::string& victim : adopted->evicted) {
          ASSERT_EQ(beliefs.at(victim).pins, 0) << "a model was evicted while it was read";
          beliefs.erase(victim);
        }
        if (!known) beliefs[digest] = fresh;
        break;
      }
      case 2:
      case 3:
        if (!chosen.empty() && beliefs[chosen].pins < 3) {
          ASSERT_TRUE(repository->Pin(chosen).ok());
          ++beliefs[chosen].pins;
        }
        break;
      case 4:
      case 5:
        if (!chosen.empty() && beliefs[chosen].pins > 0) {
          repository->Unpin(chosen);
          --beliefs[chosen].pins;
        }
        break;
      case 6:
        if (!chosen.empty() && beliefs[chosen].pins == 0 && random.Below(4) == 0) {
          ASSERT_TRUE(repository->Discard(chosen).ok());
          beliefs.erase(chosen);
        }
        break;
    }
    Bytes used;
    for (const auto& [digest, belief] : beliefs) {
      used += std::max(AlignUp(Bytes(belief.model), KiB(4)) + AlignUp(Bytes(belief.weights), KiB(4)), KiB(4));
    }
    ASSERT_EQ(repository->usage().used, used);
    ASSERT_EQ(repository->region().used(), used);
    ASSERT_EQ(repository->usage().models, beliefs.size());
    if (!chosen.empty() && beliefs.contains(chosen) && step % 8 == 0) {
      const auto copy = repository->Find(chosen);
      ASSERT_TRUE(copy.has_value());
      ASSERT_TRUE(Holds(copy->model(), byte_of(chosen)) && Holds(copy->weights(), byte_of(chosen)));
    }
  }
  EXPECT_GT(refused, 0);
  EXPECT_GT(repository->usage().evictions, 100u);
}

}  // namespace
}  // namespace troupe::storage
