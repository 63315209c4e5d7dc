// What the node learns from the driver, on a fake management library over a text file.
#include "gpu/nvml/management.hpp"

#include <cstdlib>
#include <fstream>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/temporary_directory.hpp"

namespace troupe::gpu::test {
namespace {

using testing::HasSubstr;

class GpuManagementTest : public testing::Test {
 protected:
  GpuManagementTest() {
    const char* const build = std::getenv("TROUPE_BUILD_DIR");
    EXPECT_NE(build, nullptr) << "run this test with ctest, or set TROUPE_BUILD_DIR";
    library_ = std::string(build == nullptr ? "" : build) + "/tests/fake_cuda/libnvidia-ml.so.1";
    (void)setenv("TROUPE_FAKE_NVML", machine_.c_str(), 1);
  }
  ~GpuManagementTest() override { (void)unsetenv("TROUPE_FAKE_NVML"); }
  // Adds lines to the machine's file.
  void Machine(const std::string& lines) { std::ofstream(machine_, std::ios::app) << lines; }
  std::shared_ptr<const GpuManagement> Open(const std::optional<std::string>& visible = std::nullopt) {
    auto opened = GpuManagement::Open(library_, visible);
    EXPECT_TRUE(opened.ok()) << opened.status();
    return opened.ok() ? *opened : nullptr;
  }
  std::string Topology(std::uint32_t gpus) {
    const auto found = Open()->Topology(gpus);
    return found.ok() ? *found : std::string(found.status().message());
  }
  std::string library_;
  troupe::test::TemporaryDirectory directory_;
  const std::string machine_ = directory_ / "machine";
};

TEST_F(GpuManagementTest, WhatCannotBeOpenedHasItsLine) {
  const auto none = GpuManagement::Open("libno_such_nvml.so", std::nullopt);
  EXPECT_EQ(none.status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(none.status().message(), HasSubstr("install NVIDIA's driver"));
  const auto other = GpuManagement::Open("libc.so.6", std::nullopt);
  EXPECT_EQ(other.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(other.status().message(), HasSubstr("NVML has no nvmlInit_v2"));
}

TEST_F(GpuManagementTest, TheTopologyIsWrittenAsTheOptionHasIt) {
  EXPECT_EQ(Topology(2), "none");
  Machine("gpus 4\nswitch 0 1\nswitch 2 3\nlink 0 1 1 25000\nlink 0 3 2 25000\n");
  EXPECT_EQ(Topology(4), "switch:0-1,switch:2-3,link:0-1=25000000000B,link:0-3=50000000000B");
  EXPECT_EQ(Topology(2), "switch:0-1,link:0-1=25000000000B") << "only links of GPUs in use count";
  EXPECT_THAT(Topology(5), HasSubstr("5 GPUs are asked for, NVML finds 4"));
}

TEST_F(GpuManagementTest, GpusBehindAnNvlinkSwitchHaveTheLinksOfTheOneWithFewer) {
  Machine("gpus 3\nnvswitch 0 18 25000\nnvswitch 1 18 25000\nnvswitch 2 12 25000\n");
  EXPECT_EQ(Topology(3), "link:0-1=450000000000B,link:0-2=300000000000B,link:1-2=300000000000B");
}

TEST_F(GpuManagementTest, VisibleGpusAreCountedAsProgramsCountThem) {
  Machine("gpus 4\nswitch 1 3\necc 3 2\n");
  EXPECT_EQ(Open()->gpus(), 4u);
  const auto some = Open("3,GPU-1");
  ASSERT_EQ(some->gpus(), 2u);
  EXPECT_EQ(*some->Topology(2), "switch:0-1");
  EXPECT_EQ(some->Problem(0), "2 uncorrectable ECC errors since the driver's start");
  EXPECT_EQ(some->Problem(1), "");
  EXPECT_EQ(Open("")->gpus(), 0u);
  EXPECT_THAT(GpuManagement::Open(library_, "0,7").status().message(),
              HasSubstr("CUDA_VISIBLE_DEVICES names '7', and this machine has 4 GPUs"));
}

TEST_F(GpuManagementTest, ProcessesThatHoldTheMemoryAreNamed) {
  EXPECT_TRUE(Open()->Holders(0)->empty());
  EXPECT_EQ(*Open()->Memory(0), MiB(256));
  EXPECT_EQ(*Open()->Name(0), "NVIDIA Fake 256");
  Machine("holder 0 12 small 1048576\nholder 0 4711 python 3221225472\n");
  const auto holders = Open()->Holders(0);
  ASSERT_TRUE(holders.ok()) << holders.status();
  ASSERT_EQ(holders->size(), 2u);
  EXPECT_EQ(holders->at(0).pid, 4711u);
  EXPECT_EQ(holders->at(0).name, "python");
  EXPECT_EQ(holders->at(0).memory, GiB(3));
  EXPECT_EQ(Describe(*holders), "process 4711 (python) has 3 GiB, process 12 (small) has 1 MiB");
}

TEST_F(GpuManagementTest, AProblemOfOneGpuIsHeardOfAndStays) {
  Machine("gpus 3\necc 0 0\n");
  auto watch = GpuWatch::Start(Open());
  ASSERT_TRUE(watch.ok()) << watch.status();
  EXPECT_EQ((*watch)->ProblemOf(0), "");
  Machine("xid 0 31\nxid 1 79\nxid 1 48\n");  // Xid 31 is the fault of a program, the others are critical
  while ((*watch)->ProblemOf(1).empty()) std::this_thread::yield();
  EXPECT_EQ((*watch)->ProblemOf(1), "critical error Xid 79");
  Machine("ecc 0 1\n");
  while ((*watch)->ProblemOf(0).empty()) std::this_thread::yield();
  EXPECT_EQ((*watch)->ProblemOf(0), "1 uncorrectable ECC errors since the driver's start");
  EXPECT_EQ((*watch)->ProblemOf(1), "critical error Xid 79") << "the first critical error stays";
  EXPECT_EQ((*watch)->ProblemOf(2), "");
  EXPECT_EQ((*watch)->ProblemOf(9), "");
}

// The GPU says itself whether it is of use: it exchanges rows of its memory, and errors that it contained are over.
TEST_F(GpuManagementTest, AContainedErrorOfTheMemoryIsNoProblemOfTheGpu) {
  struct Case {
    const char* machine;
    const char* problem;
  };
  for (const Case& c : {
           Case{"ecc 0 3\n", "3 uncorrectable ECC errors since the driver's start"},
           Case{"ecc 0 3\nremap 0 0 0\n", ""},
           Case{"ecc 0 3\nremap 0 1 0\n", ""},
           Case{"ecc 0 3\nremap 0 2 1\n", "no spare row is left (2 were exchanged)"},
           Case{"ecc 0 3\nrecovery 0 0\n", ""},
           Case{"ecc 0 3\nremap 0 1 0\nrecovery 0 1\n", "the driver says that it must be reset"},
           Case{"recovery 0 2\n", "its machine must be started again"},
           Case{"recovery 0 4\nremap 0 1 0\n", ""},  // a reset when its work is done: it computes until then
           Case{"lost 0\n", "it fell off the bus"},
           Case{"", ""},
       }) {
    std::ofstream(machine_) << c.machine;  // in place of the one before
    EXPECT_THAT(Open()->Problem(0), HasSubstr(c.problem)) << c.machine;
    EXPECT_EQ(Open()->Problem(0).empty(), *c.problem == 0) << c.machine;
    EXPECT_EQ(Open()->Problem(1), "") << "the other GPU is well";
  }
}

TEST_F(GpuManagementTest, TheWatchTellsOfAGpuThatFellOffTheBusAndNotOfAContainedError) {
  Machine("gpus 2\necc 0 1\nremap 0 1 0\nxid 0 48\nxid 0 63\nxid 0 94\nxid 1 31\n");
  auto watch = GpuWatch::Start(Open());
  ASSERT_TRUE(watch.ok()) << watch.status();
  Machine("lost 1\n");
  while ((*watch)->ProblemOf(1).empty()) std::this_thread::yield();
  EXPECT_THAT((*watch)->ProblemOf(1), HasSubstr("it fell off the bus"));
  EXPECT_EQ((*watch)->ProblemOf(0), "") << "its Xids were told before, and ended programs alone";
}

TEST_F(GpuManagementTest, AGpuThatIsCutIntoInstancesIsKnown) {
  Machine("mig 1\n");
  EXPECT_FALSE(Open()->Partitioned(0));
  EXPECT_TRUE(Open()->Partitioned(1));
}

TEST(Xids, ThoseOfTheApplicationAreNotTheGpus) {
  for (const std::uint64_t xid : {13, 31, 43, 45}) EXPECT_EQ(KindOf(xid), XidOf::kProgram) << xid;
  for (const std::uint64_t xid : {48, 63, 94}) EXPECT_EQ(KindOf(xid), XidOf::kMemory) << xid;
  for (const std::uint64_t xid : {62, 64, 74, 79, 95, 119}) EXPECT_EQ(KindOf(xid), XidOf::kGpu) << xid;
}

}  // namespace
}  // namespace troupe::gpu::test
