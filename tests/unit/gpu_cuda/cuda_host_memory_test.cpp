// Memory of the host that a GPU copies from: which mappings can be registered, and what is copied where only a
// part is.
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <latch>
#include <string>
#include <thread>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/unit/gpu_cuda/fake_cuda.hpp"
#include "transport/host_region.hpp"

namespace troupe::gpu::test {
namespace {

constexpr Duration kHostPatience = std::chrono::seconds(30);
constexpr std::size_t kModel = 3 << 20;

// "r--s" of the mapping that holds this address.
std::string AccessOf(const std::byte* address) {
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    std::uintptr_t from = 0;
    std::uintptr_t to = 0;
    char access[5] = {};
    const auto wanted = reinterpret_cast<std::uintptr_t>(address);
    if (std::sscanf(line.c_str(), "%lx-%lx %4s", &from, &to, access) == 3 && from <= wanted && wanted < to)
      return access;
  }
  return "";
}

class CudaHostMemory : public testing::Test {
 protected:
  void Open(bool readers_register, bool gives_back = false) {
    opened_ = cuda::Open(SmallOptions());
    ASSERT_NE(opened_.device, nullptr) << opened_.why;
    region_ = *transport::HostRegion::Create(
        "host", {.size = MiB(8), .gives_back = gives_back, .readers_register = readers_register});
    view_.emplace(*transport::HostRegionView::Open(transport::UniqueFd(dup(region_->fd()))));
    const auto range = *region_->Allocate(Bytes(kModel));
    const std::span<std::byte> bytes = *region_->Writable(range);
    for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>(i * 7 + i / 4096);
    model_ = *view_->Resolve(range);
  }
  // What came of a copy of the whole model to the device and back.
  std::vector<std::byte> ThereAndBack() {
    std::vector<std::byte> back(model_.size());
    const DeviceRange range = *opened_.device->Allocate(Bytes(model_.size()));
    const auto stream = opened_.device->MakeStream();
    const auto in = stream->CopyIn(range, model_, nullptr);
    const auto out = stream->CopyOut(back, range, nullptr);
    EXPECT_TRUE(in->Wait(kHostPatience).ok()) << in->status();
    EXPECT_TRUE(out->Wait(kHostPatience).ok()) << out->status();
    opened_.device->Free(range);
    return back;
  }
  void ExpectCopied() { EXPECT_TRUE(std::ranges::equal(ThereAndBack(), model_)); }

  CudaOpened opened_;
  std::unique_ptr<transport::HostRegion> region_;
  std::optional<transport::HostRegionView> view_;
  std::span<const std::byte> model_;
};

// On a real driver, too: this is how workers map their models.
TEST_F(CudaHostMemory, AMappingForReadingIsRegisteredAndStaysForReading) {
  for (const bool gives_back : {false, true}) {
    Open(true, gives_back);
    EXPECT_EQ(AccessOf(model_.data()), "r--s");
    const absl::Status registered = opened_.device->RegisterHost(model_);
    ASSERT_TRUE(registered.ok()) << registered;
    EXPECT_EQ(AccessOf(model_.data()), "r--s") << "nothing here writes to what the daemon owns";
    ExpectCopied();
    opened_.device->UnregisterHost(model_);
    ExpectCopied();
  }
}

// A file that the kernel lets no reader map for writing: only a GPU that reads such memory registers it.
TEST_F(CudaHostMemory, WhatCannotBeRegisteredIsCopiedAllTheSame) {
  if (RealDriver()) GTEST_SKIP() << "only the fake driver's machine can be changed";
  for (const char* const machine : {"read_only_register=0", "read_only_register=1", "no_register=1"}) {
    const FakeMachine fake(machine);
    for (const bool gives_back : {false, true}) {
      Open(false, gives_back);
      const absl::Status registered = opened_.device->RegisterHost(model_);
      EXPECT_EQ(registered.ok(), std::string(machine) == "read_only_register=1") << registered;
      ExpectCopied();
      EXPECT_TRUE(opened_.device->Health().ok()) << "a refusal is no reason to end";
      opened_.device->UnregisterHost(model_);
    }
  }
}

// A refusal leaves the memory as it was, which its owner goes on writing to.
TEST_F(CudaHostMemory, MemoryThatCanBeWrittenStaysSoWhenItIsRefused) {
  if (RealDriver()) GTEST_SKIP() << "only the fake driver's machine can be changed";
  const FakeMachine fake("no_register=1");
  Open(true);
  std::vector<std::byte> host(1 << 16);
  EXPECT_FALSE(opened_.device->RegisterHost(host).ok());
  EXPECT_EQ(AccessOf(host.data()).substr(0, 2), "rw");
}

TEST_F(CudaHostMemory, ACopyIsCutWhereARegistrationBeginsOrEnds) {
  Open(true);
  Device& device = *opened_.device;
  const auto part = [this](std::size_t begin, std::size_t end) { return model_.subspan(begin, end - begin); };
  ASSERT_TRUE(device.RegisterHost(part(4096, 1 << 20)).ok());
  ExpectCopied();
  ASSERT_TRUE(device.RegisterHost(part(1 << 20, 2 << 20)).ok());  // beside the first
  ExpectCopied();
  ASSERT_TRUE(device.RegisterHost(part((2 << 20) + 8192, kModel)).ok());
  ExpectCopied();
  EXPECT_FALSE(device.RegisterHost(part(0, 8192)).ok()) << "a part of it is registered";
  EXPECT_FALSE(device.RegisterHost(part(4096, 8192)).ok()) << "another one begins there";
  ExpectCopied();
  device.UnregisterHost(part(1 << 20, 2 << 20));
  ExpectCopied();
  device.UnregisterHost(part(4096, 1 << 20));
  device.UnregisterHost(part((2 << 20) + 8192, kModel));
  ASSERT_TRUE(device.RegisterHost(model_).ok());
  ExpectCopied();
  device.UnregisterHost(model_);
}

TEST_F(CudaHostMemory, CopiesGoOnWhileMemoryIsRegistered) {
  Open(true);
  std::latch begun(2);
  std::thread registers([&] {
    begun.arrive_and_wait();
    for (int round = 0; round < 200; ++round) {
      for (std::size_t at = 0; at < kModel; at += 1 << 20)
        ASSERT_TRUE(opened_.device->RegisterHost(model_.subspan(at, 1 << 20)).ok());
      for (std::size_t at = 0; at < kModel; at += 1 << 20)
        opened_.device->UnregisterHost(model_.subspan(at, 1 << 20));
    }
  });
  begun.arrive_and_wait();
  for (int round = 0; round < 10; ++round) ExpectCopied();
  registers.join();
}

}  // namespace
}  // namespace troupe::gpu::test
