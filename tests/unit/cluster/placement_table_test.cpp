#include "cluster/copies/placement_table.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/random.hpp"
#include "tests/unit/cluster/records.hpp"

namespace troupe::cluster {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

class PlacementTableTest : public ::testing::Test {
 protected:
  void Join(const std::string& node, const std::vector<std::string>& adopted = {}) {
    proto::JoinRequest request;
    auto& member = *request.mutable_member();
    member.set_name(node);
    member.set_kind(proto::MEMBER_NODE);
    member.set_address(node);
    member.set_host_region_bytes(GiB(1).count());
    auto& gpu = *member.add_gpus();
    gpu.set_memory_bytes(GiB(1).count());
    gpu.set_state("READY");
    ASSERT_TRUE(members_.Join(request, now_).ok());
    placement_->NodeJoined(node, adopted);
  }
  proto::LeaveRequest LeaveOf(const std::string& node) {
    proto::LeaveRequest leave;
    leave.set_name(node);
    leave.set_epoch(members_.Find(node)->record.epoch());
    return leave;
  }
  void AddFunction(const std::string& name, Bytes weights = MiB(1), bool loaded = true) {
    auto record = FunctionOf(name, weights);
    record.set_loaded(loaded);
    record.mutable_key()->set_version("1");
    functions_.Put(record);
    placement_->UsersChanged(record.model_digest());
  }
  // "+node" for an adoption, "-node" for a disownment, sorted as they came.
  std::vector<std::string> Plan() {
    std::vector<std::string> moves;
    for (const auto& move : placement_->Plan(functions_, members_, now_))
      moves.push_back((move.adopt ? "+" : "-") + move.node);
    return moves;
  }

  const std::string digest_ = Sha256Hex("model f");
  Time now_{seconds(100)};
  FunctionTable functions_;
  MembershipTable members_;
  std::optional<PlacementTable> placement_{std::in_place, 2, seconds(2)};
};

TEST_F(PlacementTableTest, ACopyIsAskedForOnceAndHeldWhenItIsAdopted) {
  AddFunction("f");
  Join("n1");
  EXPECT_EQ(Plan(), std::vector<std::string>{"+n1"});
  EXPECT_TRUE(placement_->copies().BeingAdopted(digest_));
  EXPECT_TRUE(Plan().empty()) << "the adoption is on its way";
  placement_->Adopted(digest_, "n1");
  EXPECT_FALSE(placement_->copies().BeingAdopted(digest_));
  EXPECT_EQ(placement_->copies().HoldersOf(digest_), std::vector<std::string>{"n1"});
  EXPECT_TRUE(Plan().empty());
  Join("n2");
  EXPECT_EQ(Plan(), std::vector<std::string>{"+n2"}) << "a second copy as soon as there is room for it";
}

TEST_F(PlacementTableTest, NothingIsPlannedWhileNothingHasChanged) {
  AddFunction("f");
  Join("n1");
  ASSERT_EQ(Plan().size(), 1u);
  const auto quiet = [&] {
    const auto before = placement_->plans().made;
    for (int i = 0; i < 10; ++i) {
      now_ += milliseconds(50);
      EXPECT_TRUE(Plan().empty());
    }
    return placement_->plans().made - before;
  };
  EXPECT_EQ(quiet(), 0u);
  placement_->Adopted(digest_, "n1");
  EXPECT_EQ(quiet(), 1u);
  EXPECT_EQ(quiet(), 0u);
  AddFunction("g");
  EXPECT_EQ(Plan().size(), 1u);
  EXPECT_EQ(quiet(), 0u);
  Join("n2");
  EXPECT_EQ(Plan().size(), 2u);
  EXPECT_EQ(quiet(), 0u);
  ASSERT_TRUE(members_.SetDraining("n2", true).ok());
  EXPECT_EQ(quiet(), 1u) << "a node that drains is a change";
}

TEST_F(PlacementTableTest, AFailedAdoptionIsTriedAgainLaterAndNotAtOnce) {
  AddFunction("f");
  Join("n1");
  ASSERT_EQ(Plan().size(), 1u);
  placement_->AdoptFailed(digest_, "n1", now_);
  EXPECT_TRUE(Plan().empty());
  now_ += milliseconds(1999);
  EXPECT_TRUE(Plan().empty());
  now_ += milliseconds(1);
  EXPECT_EQ(Plan(), std::vector<std::string>{"+n1"});
}

TEST_F(PlacementTableTest, ANodeThatComesBackSaysWhatItHolds) {
  AddFunction("f");
  Join("n1", {digest_});
  EXPECT_TRUE(Plan().empty());
  placement_->NodeGone("n1");
  EXPECT_TRUE(placement_->copies().HoldersOf(digest_).empty());
  placement_->NodeJoined("n1", {digest_, digest_});
  EXPECT_EQ(placement_->copies().HoldersOf(digest_), std::vector<std::string>{"n1"});
}

TEST_F(PlacementTableTest, ANodeThatLeavesWhileItAdoptsIsAskedAgainWhenItIsBack) {
  AddFunction("f");
  Join("n1");
  ASSERT_EQ(Plan().size(), 1u);
  placement_->NodeGone("n1");
  placement_->NodeJoined("n1", {});
  EXPECT_EQ(Plan(), std::vector<std::string>{"+n1"});
}

TEST_F(PlacementTableTest, TheCopiesOfADrainingNodeGoOnlyOnceTheyWereReplaced) {
  AddFunction("f");
  placement_.emplace(1, seconds(2));
  Join("n1", {digest_});
  Join("n2");
  ASSERT_TRUE(members_.SetDraining("n1", true).ok());
  EXPECT_EQ(Plan(), std::vector<std::string>{"+n2"});
  EXPECT_TRUE(Plan().empty()) << "the last copy stays until the new one is there";
  placement_->Adopted(digest_, "n2");
  EXPECT_EQ(Plan(), std::vector<std::string>{"-n1"});
  placement_->Disowned(digest_, "n1");
  EXPECT_EQ(placement_->copies().HoldersOf(digest_), std::vector<std::string>{"n2"});
}

TEST_F(PlacementTableTest, TheModelWithMostRequestsMovesFirstBehindThoseWithoutAHolder) {
  const std::vector<std::string> names = {"a", "b", "c", "d", "e"};
  std::vector<std::string> digests;
  for (const auto& name : names) {
    AddFunction(name);
    digests.push_back(Sha256Hex("model " + name));
  }
  const std::vector<std::string> kept = {digests[0], digests[1], digests[2]};
  Join("n1", kept);
  Join("n2", digests);
  ASSERT_TRUE(members_.Leave(LeaveOf("n2"), now_).ok());
  placement_->NodeGone("n2");  // a, b, c have a copy left, d and e have none
  Join("n3");
  placement_->Asked(digests[1], 5, {}, now_);
  placement_->Asked(digests[2], 100, {}, now_ - seconds(600));  // these requests came long ago
  placement_->Asked(digests[4], 1, {}, now_);
  std::vector<std::string> order;
  for (const auto& move : placement_->Plan(functions_, members_, now_)) {
    const auto at = std::find(digests.begin(), digests.end(), move.digest) - digests.begin();
    const auto& name = names[static_cast<std::size_t>(at)];
    if (std::find(order.begin(), order.end(), name) == order.end()) order.push_back(name);
  }
  EXPECT_EQ(order, (std::vector<std::string>{"e", "d", "b", "c", "a"}));
}

TEST_F(PlacementTableTest, AModelWhoseLoadNeedsMoreCopiesGetsThemAndLosesThemLater) {
  placement_.emplace(2, seconds(2), Duration(), ReplicaPolicy::kDemand);
  AddFunction("f");
  AddFunction("other");
  for (const char* node : {"n1", "n2", "n3", "n4"}) Join(node);
  const auto carry_out = [&] {
    for (const auto& move : placement_->Plan(functions_, members_, now_))
      move.adopt ? placement_->Adopted(move.digest, move.node) : placement_->Disowned(move.digest, move.node);
  };
  const auto other = Sha256Hex("model other");
  carry_out();
  ASSERT_EQ(placement_->copies().HoldersOf(digest_).size(), 2u);
  const auto before = placement_->copies().HoldersOf(other);
  const auto plans = placement_->plans().of_all_models;
  for (int i = 0; i < 300; ++i) {  // two GPUs' work
    now_ += milliseconds(100);
    placement_->Asked(digest_, 10, milliseconds(200), now_);
    carry_out();
  }
  EXPECT_EQ(placement_->copies().HoldersOf(digest_).size(), 3u);
  EXPECT_EQ(placement_->copies().HoldersOf(other), before);
  EXPECT_EQ(placement_->plans().of_all_models, plans) << "the other models were planned anew";
  for (int i = 0; i < 200; ++i) {
    now_ += seconds(1);
    carry_out();
  }
  EXPECT_EQ(placement_->copies().HoldersOf(digest_).size(), 2u);
  EXPECT_TRUE(placement_->problems().empty());
}

TEST_F(PlacementTableTest, AModelWithoutAFunctionIsDisownedEverywhere) {
  Join("n1", {digest_});
  Join("n2", {digest_});
  auto moves = Plan();
  std::sort(moves.begin(), moves.end());
  EXPECT_EQ(moves, (std::vector<std::string>{"-n1", "-n2"}));
}

TEST_F(PlacementTableTest, AFunctionMoreDoesNotPlanTheOthersAnew) {
  for (const char* node : {"n1", "n2", "n3"}) Join(node);
  for (int i = 0; i < 50; ++i) {
    AddFunction("f" + std::to_string(i));
    EXPECT_EQ(Plan().size(), 2u);
  }
  EXPECT_EQ(placement_->plans().made, 50u);
  EXPECT_EQ(placement_->plans().of_all_models, 1u) << "only the first plan was a full one";
}

// As after a manager's start: its store has very many functions. Planning them keeps it busy for a while, and never for long.
class ManyModels : public PlacementTableTest {
 protected:
  static constexpr std::size_t kModels = 5 * PlacementTable::kAtOnce;
  ManyModels() {
    for (std::size_t i = 0; i < kModels; ++i) {
      auto record = FunctionOf("f" + std::to_string(i), KiB(1));
      record.set_loaded(true);
      record.mutable_key()->set_version("1");
      functions_.Put(record);
    }
  }
  void Leave(const std::string& node) {
    ASSERT_TRUE(members_.Leave(LeaveOf(node), now_).ok());
    placement_->NodeGone(node);
  }
  // Plans until nothing is left; the copies that each plan asked for, which are adopted at once.
  std::vector<std::vector<PlacementMove>> CarryOut() {
    std::vector<std::vector<PlacementMove>> plans;
    for (;;) {
      const auto before = placement_->plans().made;
      auto moves = placement_->Plan(functions_, members_, now_);
      if (placement_->plans().made == before) return plans;
      for (const auto& move : moves)
        move.adopt ? placement_->Adopted(move.digest, move.node)
                   : placement_->Disowned(move.digest, move.node);
      std::erase_if(moves, [](const PlacementMove& move) { return !move.adopt; });
      plans.push_back(std::move(moves));
    }
  }
};

TEST_F(ManyModels, ArePlannedInPartsAndAsAllAtOnceWouldBe) {
  for (const char* node : {"n1", "n2", "n3"}) Join(node);
  std::size_t copies = 0;
  const auto at_most = [&](const std::vector<std::vector<PlacementMove>>& plans) {
    for (const auto& moves : plans) {
      copies += moves.size();
      EXPECT_LE(moves.size(), 2 * PlacementTable::kAtOnce);
    }
  };
  at_most(CarryOut());
  EXPECT_EQ(copies, 2 * kModels);
  copies = 0;
  Join("n4");
  at_most(CarryOut());
  EXPECT_GT(copies, kModels / 3) << "its part of the copies";
  EXPECT_EQ(placement_->plans().of_all_models, 0u);
  PlacementTable at_once(2, seconds(2));
  for (const auto& [digest, use] : functions_.models()) at_once.UsersChanged(digest);
  for (const auto& [member, record] : members_.members()) at_once.NodeJoined(member, {});
  static_cast<void>(at_once.Plan(functions_, members_, now_));
  EXPECT_EQ(placement_->Planned(), at_once.Planned());
}

TEST_F(ManyModels, WhatNoNodeHoldsIsPlannedFirst) {
  placement_.emplace(1, seconds(2));
  for (const char* node : {"n1", "n2", "n3"}) Join(node);
  CarryOut();
  Leave("n3");  // a third of the models have no copy now
  Join("n4");   // and of the others many have a better place
  std::set<std::string> held;
  for (const auto& [digest, use] : functions_.models())
    if (placement_->copies().IsHeld(digest)) held.insert(digest);
  ASSERT_LT(held.size(), kModels - PlacementTable::kAtOnce);
  std::size_t lost = kModels - held.size();
  const auto plans = CarryOut();
  for (const auto& moves : plans) {
    const auto of_lost = static_cast<std::size_t>(
        std::ranges::count_if(moves, [&](const PlacementMove& move) { return !held.contains(move.digest); }));
    if (of_lost < moves.size()) {
      EXPECT_EQ(of_lost, lost) << "a model was given a better place before all had a place";
    }
    lost -= of_lost;
  }
  EXPECT_EQ(lost, 0u);
}

// A plan model by model gives the same as a plan of all models, also when regions fill up, nodes come and go,
// and adoptions fail.
TEST_F(PlacementTableTest, PlansOfSomeModelsAddUpToAPlanOfAll) {
  std::size_t tight = 0;
  std::size_t some = 0;
  for (std::uint64_t seed = 1; seed <= 40; ++seed) {
    Random random(seed);
    placement_.emplace(2, seconds(2));
    functions_ = FunctionTable();
    members_ = MembershipTable();
    std::map<std::string, Bytes> weights;
    PlacementMap held;
    const auto node = [&] { return "n" + std::to_string(random.Below(5)); };
    for (int step = 0; step < 120; ++step) {
      now_ += milliseconds(100);
      const auto name = "f" + std::to_string(random.Below(30));
      switch (random.Below(6)) {
        case 0:
          Join(node());
          break;
        case 1:
          if (const auto gone = node(); members_.Find(gone) != nullptr) {
            proto::LeaveRequest leave;
            leave.set_name(gone);
            leave.set_epoch(members_.Find(gone)->record.epoch());
            if (members_.Leave(leave, now_).ok()) placement_->NodeGone(gone);
          }
          break;
        case 2: {
          proto::FunctionKey key;
          key.set_name(name);
          key.set_version("1");
          if (functions_.Remove(key)) placement_->UsersChanged(Sha256Hex("model " + name));
          break;
        }
        default:
          AddFunction(name, MiB(20 + random.Below(seed % 2 == 0 ? 20 : 200)), random.Below(4) != 0);
      }
      for (const auto& move : placement_->Plan(functions_, members_, now_)) {
        if (!move.adopt) {
          placement_->Disowned(move.digest, move.node);
        } else if (random.Below(5) == 0) {
          placement_->AdoptFailed(move.digest, move.node, now_);
        } else {
          placement_->Adopted(move.digest, move.node);
        }
      }
      static_cast<void>(placement_->Plan(functions_, members_, now_));
      const auto planned = placement_->Planned();
      PlacementTable anew(2, seconds(2));
      for (const auto& [member, record] : members_.members()) {
        std::vector<std::string> adopted;
        for (const auto& [digest, use] : functions_.models())
          if (const auto holders = placement_->copies().HoldersOf(digest);
              std::ranges::find(holders, member) != holders.end())
            adopted.push_back(digest);
        anew.NodeJoined(member, adopted);
      }
      static_cast<void>(anew.Plan(functions_, members_, now_));
      ASSERT_EQ(planned, anew.Planned()) << "seed " << seed << ", step " << step;
    }
    some += placement_->plans().made - placement_->plans().of_all_models;
    tight += seed % 2 == 0 ? 0 : placement_->plans().of_all_models;
  }
  EXPECT_GT(some, 100u) << "hardly a plan was of some models only";
  EXPECT_GT(tight, 100u) << "the regions were never full";
}

TEST_F(PlacementTableTest, AnAdoptionThatIsGivenUpIsNotUnderWay) {
  Join("n1");
  AddFunction("f");
  ASSERT_EQ(Plan(), std::vector<std::string>{"+n1"});
  ASSERT_TRUE(placement_->copies().BeingAdopted(digest_));
  placement_->Disowned(digest_, "n1");  // its function was removed before the node was asked
  EXPECT_FALSE(placement_->copies().BeingAdopted(digest_));
  EXPECT_EQ(Plan(), std::vector<std::string>{"+n1"}) << "a model that is deployed again is adopted again";
}

TEST_F(PlacementTableTest, AModelThatNoNodeCanHoldIsRefusedWithSizes) {
  EXPECT_TRUE(PlacementTable::CheckFits(FunctionOf("f", GiB(9)), members_).ok()) << "there is no node yet";
  Join("n1");
  EXPECT_TRUE(PlacementTable::CheckFits(FunctionOf("f"), members_).ok());
  const auto refused = PlacementTable::CheckFits(FunctionOf("f", GiB(9)), members_);
  EXPECT_TRUE(absl::IsFailedPrecondition(refused)) << refused;
  EXPECT_NE(refused.message().find("GiB"), std::string::npos) << refused;
}

}  // namespace
}  // namespace troupe::cluster
