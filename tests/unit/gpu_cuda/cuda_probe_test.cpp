// The probe: what it finds, and what it ends with where a GPU is of no use.
#include "gpu/cuda/probe.hpp"

#include <algorithm>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/unit/gpu_cuda/fake_cuda.hpp"

namespace troupe::gpu::test {
namespace {

using testing::Contains;
using testing::HasSubstr;
using testing::Not;

std::string FactOf(const cuda::Probed& probed, const std::string& part, const std::string& name) {
  const auto found = std::ranges::find_if(probed.facts, [&](const cuda::ProbeFact& fact) {
    return fact.part == part && fact.name.find(name) != std::string::npos;
  });
  return found == probed.facts.end() ? "" : found->value;
}

TEST(CudaProbe, SaysWhatThereIsAndWhatIsUsedOfIt) {
  const cuda::Probed probed = cuda::ProbeDevice(SmallOptions());
  ASSERT_EQ(probed.trouble, CudaTrouble::kNone) << probed.why;
  EXPECT_THAT(FactOf(probed, "driver", "is for CUDA"), Not(""));
  EXPECT_THAT(FactOf(probed, "gpu", "name"), Not(""));
  EXPECT_THAT(FactOf(probed, "attributes", "ASYNC_ENGINE_COUNT"), Not(""));
  EXPECT_THAT(FactOf(probed, "units", "made, each"), HasSubstr(" ms"));
  EXPECT_THAT(FactOf(probed, "host memory", "mapped for writing"), HasSubstr("for a GiB"));
  EXPECT_THAT(FactOf(probed, "host memory", "as a worker does it"), HasSubstr("for a GiB"));
  EXPECT_THAT(FactOf(probed, "addresses", "given"), HasSubstr("of 8"));
  EXPECT_THAT(FactOf(probed, "link", "16384 KiB"), HasSubstr("GB/s in"));
  EXPECT_EQ(FactOf(probed, "computes", "MatMul on all"), "works");
  EXPECT_EQ(FactOf(probed, "computes", "Conv on all"), "works");
  EXPECT_THAT(probed.uses, Contains(HasSubstr("its driver is for CUDA")));
  EXPECT_THAT(probed.uses, Contains(HasSubstr("Models are registered ")));
}

class FakeCudaProbe : public testing::Test {
 protected:
  void SetUp() override {
    if (RealDriver()) GTEST_SKIP() << "only the fake driver's machine can be changed";
  }
};

TEST_F(FakeCudaProbe, TellsTheWaysOfTheMachine) {
  {
    const FakeMachine machine("");
    const cuda::Probed probed = cuda::ProbeDevice(SmallOptions());
    EXPECT_THAT(FactOf(probed, "host memory", "mapped for reading"), HasSubstr("CUDA error 1"));
    EXPECT_EQ(FactOf(probed, "addresses", "given"), "8 of 8");
    EXPECT_THAT(FactOf(probed, "shares", "MatMul on 64 SMs"), HasSubstr("works"));
    EXPECT_THAT(FactOf(probed, "shares", "Conv on 16 SMs"), HasSubstr("works"));
    EXPECT_THAT(probed.uses, Contains(HasSubstr("by opening their mapping for the time of the call")));
    EXPECT_THAT(probed.uses, Contains("Shares of the SMs come in steps of 8 of 132."));
    EXPECT_THAT(probed.uses, Contains(HasSubstr("launches wait for weights on the GPU")));
  }
  {
    const FakeMachine machine("read_only_register=1,green=0,moves_addresses=1");
    const cuda::Probed probed = cuda::ProbeDevice(SmallOptions());
    EXPECT_EQ(probed.trouble, CudaTrouble::kNone) << probed.why;
    EXPECT_EQ(FactOf(probed, "addresses", "given"), "0 of 8");
    EXPECT_THAT(FactOf(probed, "shares", "of the SMs"), HasSubstr("cannot be shared out"));
    EXPECT_THAT(probed.uses, Contains(HasSubstr("as memory that the GPU only reads")));
  }
  const FakeMachine machine("no_register=1,no_words=1");
  const cuda::Probed probed = cuda::ProbeDevice(SmallOptions());
  EXPECT_EQ(probed.trouble, CudaTrouble::kNone) << "slower, and of use: " << probed.why;
  EXPECT_THAT(FactOf(probed, "link", "256 KiB"), HasSubstr("not registered"));
  EXPECT_THAT(probed.uses, Contains(HasSubstr("Models are registered not at all: ")));
  EXPECT_THAT(probed.uses,
              Contains(HasSubstr("launches wait for weights by way of the host (waiting for a word")));
}

// The driver reads them when it is started, which the probe does before it opens the GPU as a worker does.
TEST_F(FakeCudaProbe, HasTheConnectionsOfAWorker) {
  unsetenv("CUDA_DEVICE_MAX_CONNECTIONS");
  const FakeMachine machine("devices=1");
  ASSERT_EQ(cuda::ProbeDevice(SmallOptions()).trouble, CudaTrouble::kNone);
  void* const library = dlopen(DriverLibrary().c_str(), RTLD_NOW);
  EXPECT_EQ(reinterpret_cast<std::uint64_t (*)()>(dlsym(library, "FakeCudaConnections"))(), 32u);
}

TEST_F(FakeCudaProbe, TellsTheMemoryOfEachPart) {
  const FakeMachine machine("memory=2147483648,context_bytes=314572800,green_bytes=20971520");
  const cuda::Probed probed = cuda::ProbeDevice(SmallOptions());
  ASSERT_EQ(probed.trouble, CudaTrouble::kNone) << probed.why;
  EXPECT_EQ(FactOf(probed, "memory", "a context"), "300 MiB");
  EXPECT_EQ(FactOf(probed, "memory", "a worker's start"), "40 MiB") << "two places of shares";
  EXPECT_THAT(FactOf(probed, "shares", "a place of one"), testing::StartsWith("20 MiB in "));
  EXPECT_EQ(FactOf(probed, "memory", "cuBLAS"), "32 MiB") << "a workspace";
  EXPECT_EQ(FactOf(probed, "memory", "a lane"), "32 MiB") << "the workspace of the next one";
}

TEST_F(FakeCudaProbe, TellsWhetherPlansAreRecorded) {
  {
    const FakeMachine machine("");
    const cuda::Probed probed = cuda::ProbeDevice(SmallOptions());
    EXPECT_EQ(FactOf(probed, "recordings", "MatMul"), "works");
    EXPECT_EQ(FactOf(probed, "recordings", "Conv"), "works");
    EXPECT_THAT(probed.uses, Contains(HasSubstr("Plans are recorded when they are made")));
  }
  const FakeMachine machine("no_capture=1");
  const cuda::Probed probed = cuda::ProbeDevice(SmallOptions());
  EXPECT_EQ(probed.trouble, CudaTrouble::kNone) << "slower, and of use: " << probed.why;
  EXPECT_THAT(FactOf(probed, "recordings", "MatMul"), HasSubstr("CUDA_ERROR_NOT_SUPPORTED"));
  EXPECT_EQ(FactOf(probed, "computes", "MatMul on all SMs"), "works");
  EXPECT_THAT(probed.uses, Contains(HasSubstr("First launches load their code, since nothing is recorded")));
}

// What a worker would end with, after what could be found.
TEST_F(FakeCudaProbe, EndsWithTheTroubleOfAWorker) {
  struct Case {
    const char* machine;
    CudaTrouble trouble;
    const char* part;  // of which facts are there all the same
  };
  for (const Case& c :
       {Case{"version=12080", CudaTrouble::kDriverTooOld, "gpu"},
        Case{"init=807", CudaTrouble::kTaken, "driver"}, Case{"devices=0", CudaTrouble::kNoDevice, "driver"},
        Case{"major=7", CudaTrouble::kWrongArchitecture, "attributes"},
        Case{"held=260000000", CudaTrouble::kBusy, "attributes"},
        Case{"mps=1", CudaTrouble::kTaken, "attributes"},
        Case{"compute_mode=2", CudaTrouble::kTaken, "attributes"}}) {
    const FakeMachine machine(c.machine);
    const cuda::Probed probed = cuda::ProbeDevice(SmallOptions());
    EXPECT_EQ(probed.trouble, c.trouble) << c.machine << ": " << probed.why;
    EXPECT_EQ(probed.why.find('\n'), std::string::npos);
    EXPECT_NE(FactOf(probed, c.part, ""), "") << c.machine;
  }
  CudaOptions options = SmallOptions();
  options.dnn = "libno_such_library.so";
  const cuda::Probed probed = cuda::ProbeDevice(options);
  EXPECT_EQ(probed.trouble, CudaTrouble::kNone) << "a worker serves what needs no convolution";
  EXPECT_THAT(FactOf(probed, "libraries", "libno_such_library.so"), HasSubstr("missing: "));
  EXPECT_THAT(FactOf(probed, "computes", "Conv on all SMs"), HasSubstr("is needed and cannot be opened"));
}

}  // namespace
}  // namespace troupe::gpu::test
