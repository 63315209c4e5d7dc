// The parts of the table of GPUs: how busy they are, which models they have, whom they serve.
#include "node/scheduling/gpu_loads.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>

#include "node/scheduling/model_holders.hpp"
#include "node/scheduling/runtime_queries.hpp"

namespace troupe::node {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

class GpuLoadsTest : public testing::Test {
 protected:
  GpuLoadsTest() {
    for (GpuIndex i = 0; i < gpus_.size(); ++i) {
      gpus_[i].index = i;
      gpus_[i].device = i / 2;  // two runtimes on each device
      gpus_[i].memory = GiB(1);
      loads_.Add(i, i / 2);
    }
  }
  void Set(GpuIndex gpu, WorkerState worker, std::uint32_t in_flight) {
    loads_.Changed(gpu);
    loads_.Set(gpus_[gpu], worker, in_flight, 100 * in_flight);
    loads_.Check(all());
  }
  std::vector<const Gpu*> all() const { return {&gpus_[0], &gpus_[1], &gpus_[2], &gpus_[3]}; }
  std::vector<GpuIndex> Order() {
    std::vector<GpuIndex> order;
    loads_.Ordered(all()).InOrder([&](const GpuPlace& place) {
      order.push_back(place.gpu);
      return true;
    });
    return order;
  }
  std::array<Gpu, 4> gpus_;
  GpuLoads loads_;
};

TEST_F(GpuLoadsTest, OnlyThoseWithALivingWorkerAreInOrder) {
  EXPECT_THAT(Order(), IsEmpty());
  EXPECT_EQ(loads_.Least(), ~std::uint32_t{0});
  Set(0, WorkerState::kReady, 2);
  Set(1, WorkerState::kReady, 1);
  Set(3, WorkerState::kReady, 1);
  EXPECT_THAT(Order(), ElementsAre(1, 3, 0));
  EXPECT_EQ(loads_.ReadyCount(), 3u);
  EXPECT_EQ(loads_.Least(), 1u);
  Set(1, WorkerState::kUnfit, 0);
  EXPECT_THAT(Order(), ElementsAre(3, 0));
  EXPECT_EQ(loads_.ReadyCount(), 2u);
}

TEST_F(GpuLoadsTest, OfEquallyBusyOnesTheOneWithMoreFreeMemoryIsFirst) {
  Set(0, WorkerState::kReady, 0);
  Set(1, WorkerState::kReady, 0);
  EXPECT_THAT(Order(), ElementsAre(0, 1));
  gpus_[0].staying = MiB(100);
  loads_.Changed(0);
  EXPECT_THAT(Order(), ElementsAre(1, 0));
}

TEST_F(GpuLoadsTest, RequestsAreCountedForADevice) {
  Set(0, WorkerState::kReady, 2);
  Set(1, WorkerState::kReady, 3);
  Set(2, WorkerState::kReady, 1);
  EXPECT_EQ(loads_.InFlightOn(0), 5u);
  EXPECT_EQ(loads_.InFlightOn(1), 1u);
  Set(1, WorkerState::kAbsent, 0);
  EXPECT_EQ(loads_.InFlightOn(0), 2u);
}

TEST(ModelHolders, AreInOrderAndCounted) {
  ModelHolders holders;
  EXPECT_THAT(holders.Of(5), IsEmpty());
  holders.Enter(5, 3);
  holders.Enter(5, 1);
  holders.Enter(2, 1);
  EXPECT_THAT(holders.Of(5), ElementsAre(1, 3));
  EXPECT_TRUE(holders.Has(5, 3));
  EXPECT_FALSE(holders.Has(5, 2));
  EXPECT_EQ(holders.Count(5), 2u);
  EXPECT_EQ(holders.end(), 6u);
  holders.Leave(5, 1);
  EXPECT_THAT(holders.Of(5), ElementsAre(3));
}

TEST(ModelHolders, ReferToAModelUntilItIsReallyGone) {
  ModelHolders holders;
  EXPECT_FALSE(holders.Refers(1));
  holders.Enter(1, 0);
  EXPECT_TRUE(holders.Refers(1));
  holders.Leave(1, 0);
  holders.BeginEvict(1);
  EXPECT_TRUE(holders.Refers(1));
  holders.EndEvict(1);
  EXPECT_FALSE(holders.Refers(1));
}

GpuMap TwoRuntimes() {
  GpuMap gpus;
  for (GpuIndex i = 0; i < 2; ++i) {
    Gpu gpu;
    gpu.index = i;
    gpu.device = i;
    gpu.memory = GiB(1 + i);
    gpus.emplace(i, gpu);
  }
  return gpus;
}

TEST(RuntimeQueries, AKeyIsServedByARuntimeThatIsReadyAndAssigned) {
  GpuMap gpus = TwoRuntimes();
  gpus.at(1).key = "alice";
  EXPECT_FALSE(Served(gpus, "alice", std::nullopt)) << "its worker is not there";
  gpus.at(1).worker = WorkerState::kReady;
  EXPECT_TRUE(Served(gpus, "alice", std::nullopt));
  EXPECT_TRUE(Served(gpus, "alice", 1));
  EXPECT_FALSE(Served(gpus, "alice", 0));
  EXPECT_FALSE(Served(gpus, "bob", std::nullopt));
  gpus.at(0).coming = "bob";
  EXPECT_TRUE(Coming(gpus, "bob"));
  EXPECT_FALSE(Starting(gpus)) << "the worker that is absent is started for a key";
  gpus.at(0).coming.reset();
  EXPECT_TRUE(Starting(gpus));
}

TEST(RuntimeQueries, ARuntimeInUseIsNotTaken) {
  Gpu gpu;
  gpu.worker = WorkerState::kReady;
  EXPECT_TRUE(Takeable(gpu));
  gpu.residents[1] = Resident{.state = ResidentState::kResident};
  EXPECT_TRUE(Takeable(gpu));
  gpu.residents[1].readers = 1;
  EXPECT_FALSE(Takeable(gpu));
  gpu.residents[1].readers = 0;
  gpu.unread = 1;
  EXPECT_FALSE(Takeable(gpu));
  gpu.unread = 0;
  gpu.in_flight = 1;
  EXPECT_FALSE(Takeable(gpu));
}

TEST(RuntimeQueries, UnfitGpusHaveNoMemory) {
  GpuMap gpus = TwoRuntimes();
  EXPECT_EQ(LargestMemory(gpus), GiB(2));
  EXPECT_FALSE(AllUnfit(gpus));
  gpus.at(1).worker = WorkerState::kUnfit;
  EXPECT_EQ(LargestMemory(gpus), GiB(1));
  gpus.at(0).worker = WorkerState::kUnfit;
  EXPECT_TRUE(AllUnfit(gpus));
  EXPECT_TRUE(AllUnfit({}));
}

}  // namespace
}  // namespace troupe::node
