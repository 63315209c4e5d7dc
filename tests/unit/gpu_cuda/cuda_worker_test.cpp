// The worker program on a CUDA device: it loads the plug-in and serves, or ends with the code and the line
// that say why it cannot.
#include <fcntl.h>
#include <sys/resource.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "gmock/gmock.h"
#include "gpu/worker/exit_codes.hpp"
#include "gtest/gtest.h"
#include "tests/unit/gpu_worker/worker_harness.hpp"

namespace troupe::gpu::test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

// The folder of the fake libraries.
std::string Fakes() {
  const char* const build = std::getenv("TROUPE_BUILD_DIR");
  return std::string(build == nullptr ? "build/release" : build) + "/tests/fake_cuda";
}

// Sets the machine for workers that are started from now on.
class WorkerMachine {
 public:
  WorkerMachine(const std::string& libraries, const std::string& words) {
    setenv("LD_LIBRARY_PATH", libraries.c_str(), 1);
    setenv("TROUPE_FAKE_CUDA", words.c_str(), 1);
  }
  explicit WorkerMachine(const std::string& words) : WorkerMachine(Fakes(), words) {}
  ~WorkerMachine() {
    unsetenv("LD_LIBRARY_PATH");
    unsetenv("TROUPE_FAKE_CUDA");
  }
  WorkerMachine(const WorkerMachine&) = delete;
  WorkerMachine& operator=(const WorkerMachine&) = delete;
};

class CudaHarness : public WorkerHarness {
 public:
  explicit CudaHarness(const char* device = "cuda:0") {
    command.device = device;
    command.quota = MiB(16);
    host = *transport::HostRegion::Create("host", {.size = MiB(32), .readers_register = true});
  }
};

struct End {
  int code = 0;
  std::string said;
};

End EndOf(CudaHarness& harness) {
  const std::string log = harness.directory / "log";
  const int fd = open(log.c_str(), O_CREAT | O_RDWR | O_CLOEXEC, 0600);
  harness.command.log = fd;
  End end;
  end.code = WorkerHarness::Value(WorkerHarness::Value(StartWorker(harness.command)).Wait(kPatience)).code;
  close(fd);
  std::ostringstream text;
  text << std::ifstream(log).rdbuf();
  end.said = text.str();
  return end;
}

TEST(CudaWorker, ServesARunFromAdoptionToShutdown) {
  const WorkerMachine machine("");
  CudaHarness harness;
  Link link = harness.StartAndAdopt();
  EXPECT_EQ(link.connection->description().device(), "cuda:0");
  EXPECT_EQ(link.connection->description().memory_bytes(), 16u << 20);
  const auto copy = PlaceSmall(*harness.host, "m", 1, 1 << 20);
  for (int round = 0; round < 2; ++round) {
    const auto prepared = link.Ask(PrepareOf(copy, 2));
    ASSERT_EQ(prepared.code(), 0) << prepared.message();
    const auto swapped = link.Ask(SwapInOf(copy));
    ASSERT_EQ(swapped.code(), 0) << swapped.message();
    EXPECT_EQ(swapped.bytes(), 1u << 20);
    const auto ran = link.Ask(RunOf("m", 2));
    ASSERT_EQ(ran.code(), 0) << ran.message();
    EXPECT_THAT(Floats(ran.run().outputs(0).data().inlined()), ElementsAre(1, 3, 5, 0, 5, 7, 9, 0));
    EXPECT_EQ(link.Ask(EvictOf("m")).code(), 0);
  }
  EXPECT_EQ(link.Ask(DescribeOf()).description().free_bytes(), 16u << 20);
  EXPECT_EQ(link.Ask(ShutdownOf()).code(), 0);
  const WorkerDeath death = link.heard->AwaitDeath();
  ASSERT_TRUE(death.end.has_value());
  EXPECT_TRUE(death.end->clean()) << death.ToString();
}

TEST(CudaWorker, RunsThatComeAgainGiveTheSameWithAndWithoutGraphs) {
  const WorkerMachine machine("");
  for (const auto& [name, repeated] : kRepeatedLaunches) {
    CudaHarness harness;
    harness.command.repeated = repeated;
    Link link = harness.StartAndAdopt();
    const auto copy = PlaceSmall(*harness.host, "m");
    ASSERT_EQ(link.Ask(PrepareOf(copy, 2)).code(), 0);
    for (int swap = 0; swap < 2; ++swap) {
      ASSERT_EQ(link.Ask(SwapInOf(copy)).code(), 0);
      for (int round = 0; round < 4; ++round) {
        const auto ran = link.Ask(RunOf("m", 2));
        ASSERT_EQ(ran.code(), 0) << ran.message();
        EXPECT_THAT(Floats(ran.run().outputs(0).data().inlined()), ElementsAre(1, 3, 5, 0, 5, 7, 9, 0));
      }
      ASSERT_EQ(link.Ask(EvictOf("m")).code(), 0);
    }
  }
}

TEST(CudaWorker, APlanIsForOnePrecision) {
  const WorkerMachine machine("");
  CudaHarness harness;
  Link link = harness.StartAndAdopt();
  const auto copy = PlaceSmall(*harness.host, "m");
  ASSERT_EQ(link.Ask(SwapInOf(copy)).code(), 0);
  proto::WorkerOrder prepare = PrepareOf(copy, 2);
  prepare.mutable_prepare()->set_precision(proto::PRECISION_BF16);
  ASSERT_EQ(link.Ask(prepare).code(), 0);
  proto::WorkerOrder run = RunOf("m", 2);
  EXPECT_EQ(link.Ask(run).code(), CodeOf(absl::StatusCode::kFailedPrecondition)) << "FP32 has no such plan";
  run.mutable_run()->set_precision(proto::PRECISION_BF16);
  EXPECT_EQ(link.Ask(run).code(), 0);
  const auto described = link.Ask(DescribeOf()).description();
  ASSERT_EQ(described.prepared_size(), 1);
  EXPECT_EQ(described.prepared(0).precision(), proto::PRECISION_BF16);
  run.mutable_run()->set_precision(static_cast<proto::Precision>(9));
  const auto unknown = link.Ask(run);
  EXPECT_EQ(unknown.code(), CodeOf(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(unknown.message(), HasSubstr("precision 9 was asked for"));
  prepare.mutable_prepare()->set_precision(static_cast<proto::Precision>(9));
  EXPECT_EQ(link.Ask(prepare).code(), CodeOf(absl::StatusCode::kInvalidArgument));
}

// The orders of a function whose model is on the host, and of one whose weights come layer by layer.
// By the GPU's own waiting, and by way of the host where it cannot wait.
TEST(CudaWorker, ARunBeginsWhileItsModelComes) {
  for (const char* const words : {"", "no_words=1"}) {
    const WorkerMachine machine(words);
    CudaHarness harness;
    Link link = harness.StartAndAdopt();
    const auto copy = PlaceSmall(*harness.host, "m", 1, 8 << 20);
    ASSERT_EQ(link.Ask(PrepareOf(copy, 2)).code(), 0);
    for (int round = 0; round < 6; ++round) {
      const bool by_layer = round % 2 == 1;
      const std::uint64_t swap = by_layer ? 0 : link.Send(SwapInOf(copy));
      proto::WorkerOrder run = RunOf("m", 2);
      *run.mutable_run()->mutable_model() = copy;
      run.mutable_run()->set_by_layer(by_layer);
      const auto ran = link.Ask(run);
      ASSERT_EQ(ran.code(), 0) << ran.message();
      EXPECT_THAT(Floats(ran.run().outputs(0).data().inlined()), ElementsAre(1, 3, 5, 0, 5, 7, 9, 0));
      if (by_layer) continue;
      EXPECT_EQ(link.heard->Await(swap).code(), 0);
      EXPECT_EQ(link.Ask(EvictOf("m")).code(), 0);
    }
  }
}

TEST(CudaWorker, WeightsMappedToOneAddressAreReadThere) {
  const WorkerMachine machine("");
  CudaHarness harness;
  harness.command.addresses = WeightAddresses::kMapped;
  Link link = harness.StartAndAdopt();
  const auto copy = PlaceSmall(*harness.host, "m", 1, 3 << 20);
  proto::WorkerOrder order = SwapInOf(copy);
  order.mutable_swap_in()->set_address(std::uint64_t{40} << 40);
  for (int round = 0; round < 3; ++round) {
    const auto swapped = link.Ask(order);
    ASSERT_EQ(swapped.code(), 0) << swapped.message();
    proto::WorkerOrder run = RunOf("m", 1);
    *run.mutable_run()->mutable_model() = copy;
    const auto ran = link.Ask(run);
    ASSERT_EQ(ran.code(), 0) << ran.message();
    EXPECT_THAT(Floats(ran.run().outputs(0).data().inlined()), ElementsAre(1, 3, 5, 0));
    EXPECT_EQ(link.Ask(EvictOf("m")).code(), 0);
  }
}

// A large GPU has large units: models lie in whole ones, and at other addresses than it can map them to they go
// elsewhere.
TEST(CudaWorker, WeightsAreMappedInTheUnitsOfTheGpu) {
  for (const char* const words : {"unit=16777216", "unit=33554432"}) {
    const WorkerMachine machine(words);
    CudaHarness harness;
    harness.command.addresses = WeightAddresses::kMapped;
    harness.command.quota = MiB(64);
    Link link = harness.StartAndAdopt();
    const auto copy = PlaceSmall(*harness.host, "m", 1, 20 << 20);
    proto::WorkerOrder order = SwapInOf(copy);
    for (const std::uint64_t address : {std::uint64_t{40} << 40, (std::uint64_t{40} << 40) + (2 << 20)}) {
      order.mutable_swap_in()->set_address(address);
      const auto swapped = link.Ask(order);
      ASSERT_EQ(swapped.code(), 0) << swapped.message();
      EXPECT_EQ(link.Ask(DescribeOf()).description().free_bytes(), 32u << 20)
          << "two units of 16 MiB, or one of 32";
      proto::WorkerOrder run = RunOf("m", 1);
      *run.mutable_run()->mutable_model() = copy;
      EXPECT_THAT(Floats(link.Ask(run).run().outputs(0).data().inlined()), ElementsAre(1, 3, 5, 0));
      EXPECT_EQ(link.Ask(EvictOf("m")).code(), 0);
    }
  }
}

// Each unit of memory that another worker reads is a descriptor.
TEST(CudaWorker, MayOpenAsManyFilesAsTheSystemLetsIt) {
  const WorkerMachine machine("");
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  rlimit low = before;
  low.rlim_cur = 256;
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &low), 0);
  CudaHarness harness;
  harness.Start();
  const std::string limits = "/proc/" + std::to_string(harness.process.pid()) + "/limits";
  Link link = harness.Adopt(1);
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
  std::ifstream file(limits);
  std::string found;
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("Max open files")) found = line;
  }
  std::istringstream words(found.substr(std::string("Max open files").size()));
  std::uint64_t now = 0;
  words >> now;
  EXPECT_EQ(now, before.rlim_max) << found;
}

// Waits until the worker has registered so much of its host region, and nothing is left to register.
void AwaitRegistered(Link& link, std::uint64_t bytes) {
  const Time give_up = transport::SteadyNow() + kPatience;
  for (;;) {
    const auto described = link.Ask(DescribeOf()).description();
    if (described.registered_bytes() == bytes && described.registering_bytes() == 0) return;
    ASSERT_LT(transport::SteadyNow(), give_up) << described.registered_bytes() << " bytes are registered";
    std::this_thread::yield();
  }
}

// The fake driver copies from the pages that it registered, as a GPU does.
TEST(CudaWorker, AModelInThePlaceOfAnotherIsCopiedFromItsOwnPages) {
  const WorkerMachine machine("pins=1");
  CudaHarness harness;
  harness.host =
      *transport::HostRegion::Create("host", {.size = MiB(32), .gives_back = true, .readers_register = true});
  Link link = harness.StartAndAdopt();
  constexpr std::size_t kBytes = 2 << 20;
  std::uint64_t place = 0;
  for (int round = 0; round < 4; ++round) {
    const auto first = static_cast<float>(1 + 4 * round);
    const std::string digest = "m" + std::to_string(round);
    const auto copy = PlaceSmall(*harness.host, digest, first, kBytes, kBytes - 4096);
    EXPECT_TRUE(round == 0 || copy.weights().offset() == place) << "it takes the place of the one before";
    place = copy.weights().offset();
    for (int swap = 0; swap < 2; ++swap) {  // in the second one the model is registered
      if (swap > 0) AwaitRegistered(link, kBytes);
      ASSERT_EQ(link.Ask(SwapInOf(copy)).code(), 0);
      proto::WorkerOrder run = RunOf(digest, 1);
      *run.mutable_run()->mutable_model() = copy;
      EXPECT_THAT(Floats(link.Ask(run).run().outputs(0).data().inlined()),
                  ElementsAre(first, first + 2, first + 4, 0));
      ASSERT_EQ(link.Ask(EvictOf(digest)).code(), 0);
    }
    ASSERT_TRUE(harness.host->Free(copy.weights()).ok());
    ASSERT_TRUE(harness.host->Free(copy.model()).ok());
    harness.host->GiveBack();
  }
  AwaitRegistered(link, 0);
}

// Registering takes a tenth of a second and more for a GiB: adoption, swaps and runs do not wait for it.
TEST(CudaWorker, AModelIsServedWhileItIsStillRegistered) {
  const WorkerMachine machine("held_register=1048576");
  CudaHarness harness;
  const std::string hold = harness.directory / "hold";
  std::ofstream(hold) << "held";
  setenv("TROUPE_FAKE_CUDA_HOLD", hold.c_str(), 1);
  harness.command.group = MiB(2);  // the link is not probed, for which memory is registered, too
  Link link = harness.StartAndAdopt();
  unsetenv("TROUPE_FAKE_CUDA_HOLD");
  constexpr std::size_t kBytes = 2 << 20;
  const auto copy = PlaceSmall(*harness.host, "m", 1, kBytes);
  ASSERT_EQ(link.Ask(SwapInOf(copy)).code(), 0);
  proto::WorkerOrder run = RunOf("m", 1);
  *run.mutable_run()->mutable_model() = copy;
  EXPECT_THAT(Floats(link.Ask(run).run().outputs(0).data().inlined()), ElementsAre(1, 3, 5, 0));
  const auto described = link.Ask(DescribeOf()).description();
  EXPECT_EQ(described.registered_bytes(), 0u);
  EXPECT_EQ(described.registering_bytes(), kBytes);
  std::filesystem::remove(hold);
  AwaitRegistered(link, kBytes);
}

// The largest piece of host memory that the worker has registered so far.
std::uint64_t LargestRegistered(const std::string& file) {
  std::ifstream sizes(file);
  std::uint64_t largest = 0;
  for (std::uint64_t size = 0; sizes >> size;) largest = std::max(largest, size);
  return largest;
}

// Its place in the worker's arena is registered behind the first run, and serves the next ones.
TEST(CudaWorker, TheArenaIsRegisteredWhereALargeOutputLay) {
  constexpr std::int64_t kRows = 1 << 16;
  const WorkerMachine machine("");
  CudaHarness harness;
  const std::string registered = harness.directory / "registered";
  setenv("TROUPE_FAKE_CUDA_REGISTERED", registered.c_str(), 1);
  harness.command.group = MiB(2);  // the link is not probed, for which memory is registered, too
  Link link = harness.StartAndAdopt();
  unsetenv("TROUPE_FAKE_CUDA_REGISTERED");
  proto::Model model = SmallModel();  // y = x as often as the weights say
  model.mutable_steps()->DeleteSubrange(1, 1);
  model.mutable_steps(0)->set_op("Expand");
  model.mutable_steps(0)->set_outputs(0, "y");
  proto::Weight& shape = *model.mutable_weights(0);
  shape.set_type(proto::INT64);
  shape.set_shape(0, 2);
  shape.set_length(2 * sizeof(std::int64_t));
  std::vector<std::byte> weights(64);
  const std::array<std::int64_t, 2> dims = {kRows, kColumns};
  std::memcpy(weights.data(), dims.data(), sizeof(dims));
  const auto copy = PlaceModel(*harness.host, "m", model, weights);
  ASSERT_EQ(link.Ask(SwapInOf(copy)).code(), 0);
  EXPECT_LT(LargestRegistered(registered), 1u << 20);
  for (int round = 0; round < 3; ++round) {
    proto::WorkerOrder run = RunOf("m", 1);
    *run.mutable_run()->mutable_model() = copy;
    const auto ran = link.Ask(run);
    ASSERT_EQ(ran.code(), 0) << ran.message();
    ASSERT_TRUE(ran.run().outputs(0).data().has_arena());
    transport::ArenaClient reader{transport::ArenaClient::Options()};
    const auto output = reader.Resolve(ran.run().outputs(0).data().arena());
    ASSERT_TRUE(output.ok()) << output.status();
    const std::vector<float> values = Floats(output->bytes);
    ASSERT_EQ(values.size(), static_cast<std::size_t>(kRows * kColumns));
    EXPECT_THAT(std::vector<float>(values.end() - kColumns, values.end()), ElementsAre(0, 1, 2, 3));
    const Time give_up = transport::SteadyNow() + kPatience;
    while (LargestRegistered(registered) < 1u << 20 && transport::SteadyNow() < give_up)
      std::this_thread::yield();
    EXPECT_GE(LargestRegistered(registered), 1u << 20);
  }
}

TEST(CudaWorker, AHostRegionThatCannotBeRegisteredIsServedBySlowerCopies) {
  const WorkerMachine machine("no_register=1");
  CudaHarness harness;
  const std::string log = harness.directory / "log";
  harness.command.log = open(log.c_str(), O_CREAT | O_RDWR | O_CLOEXEC, 0600);
  Link link = harness.StartAndAdopt();
  for (const char* const digest : {"m", "n"}) {
    const auto copy = PlaceSmall(*harness.host, digest, 1, 1 << 20);
    ASSERT_EQ(link.Ask(SwapInOf(copy)).code(), 0);
    proto::WorkerOrder run = RunOf(digest, 1);
    *run.mutable_run()->mutable_model() = copy;
    EXPECT_THAT(Floats(link.Ask(run).run().outputs(0).data().inlined()), ElementsAre(1, 3, 5, 0));
  }
  EXPECT_EQ(link.Ask(ShutdownOf()).code(), 0);
  link.heard->AwaitDeath();
  close(harness.command.log);
  std::ostringstream said;
  said << std::ifstream(log).rdbuf();
  EXPECT_THAT(said.str(), HasSubstr("models come by slower copies"));
  EXPECT_EQ(said.str().find("slower copies"), said.str().rfind("slower copies")) << said.str();
}

TEST(CudaWorker, AnOperatorThatIsNotCoveredIsRefusedByName) {
  const WorkerMachine machine("");
  CudaHarness harness;
  Link link = harness.StartAndAdopt();
  proto::Model model = SmallModel();
  model.mutable_steps(1)->set_op("Hardmax");
  model.mutable_steps(1)->set_name("last");
  const auto copy = PlaceModel(*harness.host, "m", model, SmallWeights());
  const auto prepared = link.Ask(PrepareOf(copy, 2));
  EXPECT_EQ(prepared.code(), CodeOf(absl::StatusCode::kUnimplemented));
  EXPECT_THAT(prepared.message(), HasSubstr("Hardmax 'last': no kernel of the GPU covers this operator"));
  EXPECT_EQ(link.Ask(SwapInOf(PlaceSmall(*harness.host, "other"))).code(), 0) << "the worker goes on";
}

// Models that need no product are served without cuBLAS: that it is not there, or is another one, is no reason to end.
TEST(CudaWorker, ALibraryThatIsMissingRefusesTheModelsThatNeedItAndNoOthers) {
  CudaHarness without;
  std::filesystem::create_symlink(Fakes() + "/libcuda.so.1", without.directory / "libcuda.so.1");
  std::ofstream(without.directory / "libcublas.so.13") << "not a library";
  struct Case {
    std::string libraries;
    const char* machine;
    const char* line;
  };
  for (const Case& c :
       {Case{without.directory.path(), "", "libcublas.so.13 is needed and cannot be opened"},
        Case{Fakes(), "cublas=12", "libcublas.so.13 is of cuBLAS 12, and cuBLAS 13 is needed"}}) {
    const WorkerMachine machine(c.libraries, c.machine);
    CudaHarness harness;
    Link link = harness.StartAndAdopt();
    proto::Model model = SmallModel();
    model.mutable_steps()->DeleteSubrange(1, 1);
    model.mutable_steps(0)->set_op("MatMul");
    model.mutable_steps(0)->set_outputs(0, "y");
    model.mutable_weights(0)->add_shape(kColumns);
    model.mutable_weights(0)->set_length(kColumns * kColumns * sizeof(float));
    const auto prepared = link.Ask(PrepareOf(PlaceModel(*harness.host, "m", model, SmallWeights()), 2));
    EXPECT_EQ(prepared.code(), CodeOf(absl::StatusCode::kFailedPrecondition)) << prepared.message();
    EXPECT_THAT(prepared.message(), HasSubstr(c.line));
    const auto other = PlaceSmall(*harness.host, "other");
    ASSERT_EQ(link.Ask(SwapInOf(other)).code(), 0);
    proto::WorkerOrder run = RunOf("other", 1);
    *run.mutable_run()->mutable_model() = other;
    EXPECT_EQ(link.Ask(run).code(), 0) << "the worker goes on";
  }
}

TEST(CudaWorker, EachTroubleHasItsExitCodeAndItsLine) {
  struct Case {
    const char* machine;
    int code;
    const char* line;
  };
  for (const Case& c :
       {Case{"version=12080", kExitDriverTooOld, "driver too old: cuda:0 needs"},
        Case{"devices=0", kExitNoDevice, "no device: cuda:0 was asked for"},
        Case{"major=6", kExitWrongArchitecture, "wrong architecture: cuda:0 is of sm_60"},
        Case{"refuse=5", kExitOutOfMemory, "out of memory at start: taking 16 MiB"},
        Case{"compute_mode=2", kExitKeptOff, "kept off the GPU: cuda:0 lets no process compute"},
        Case{"mps=1", kExitKeptOff, "kept off the GPU: an MPS server stands between"},
        Case{"mig=1", kExitKeptOff, "kept off the GPU: cuda:0 is an instance of a GPU"},
        Case{"no_context=46", kExitMemoryHeld, "cuda:0 is another process's alone"},
        Case{"held=268000000", kExitMemoryHeld, "another process holds the memory: cuda:0"}}) {
    const WorkerMachine machine(c.machine);
    CudaHarness harness;
    const End end = EndOf(harness);
    EXPECT_EQ(end.code, c.code) << c.machine;
    EXPECT_THAT(end.said, HasSubstr(c.line));
    EXPECT_EQ(std::count(end.said.begin(), end.said.end(), '\n'), 1) << end.said;
    EXPECT_STRNE(ExitCodeName(end.code), "");
  }
  CudaHarness odd("cuda:one");
  EXPECT_EQ(EndOf(odd).code, kExitUsage);
  CudaHarness timed;
  timed.command.compute = ComputeMode::kTimed;
  EXPECT_EQ(EndOf(timed).code, kExitUsage);
}

// The program that asks before a daemon is started ends as a worker would, with the same line.
TEST(CudaProbeProgram, EndsAsAWorkerWould) {
  struct Case {
    const char* machine;
    const char* nvml;
    int code;
    const char* line;
  };
  for (const Case& c :
       {Case{"", "", kExitClean, ""},
        Case{"version=12080", "", kExitDriverTooOld, "driver too old: cuda:0 needs a driver for CUDA 13"},
        Case{"", "mig 0\n", kExitKeptOff, "kept off the GPU: cuda:0 is cut into instances (MIG)"}}) {
    const WorkerMachine machine(c.machine);
    const troupe::test::TemporaryDirectory directory;
    std::ofstream(directory / "nvml") << c.nvml;
    setenv("TROUPE_FAKE_NVML", (directory / "nvml").c_str(), 1);
    const std::string command = Fakes() + "/../../bin/troupe-gpu-probe --device cuda:0 --json " +
                                (directory / "json") + " > " + (directory / "out") + " 2> " +
                                (directory / "err");
    const int status = std::system(command.c_str());
    unsetenv("TROUPE_FAKE_NVML");
    EXPECT_EQ(WEXITSTATUS(status), c.code) << c.machine;
    std::ostringstream said;
    said << std::ifstream(directory / "err").rdbuf();
    EXPECT_THAT(said.str(), HasSubstr(c.line));
    EXPECT_EQ(std::ranges::count(said.str(), '\n'), c.code == 0 ? 0 : 1) << said.str();
    std::ostringstream json;
    json << std::ifstream(directory / "json").rdbuf();
    EXPECT_THAT(json.str(), HasSubstr("\"facts\""));
  }
}

// Its driver would show a program one of its instances.
TEST(CudaWorker, AGpuThatIsCutIntoInstancesIsRefused) {
  const WorkerMachine machine("");
  CudaHarness harness;
  const std::string says = harness.directory / "nvml";
  std::ofstream(says) << "mig 0\n";
  setenv("TROUPE_FAKE_NVML", says.c_str(), 1);
  const End end = EndOf(harness);
  unsetenv("TROUPE_FAKE_NVML");
  EXPECT_EQ(end.code, kExitKeptOff);
  EXPECT_THAT(end.said, HasSubstr("kept off the GPU: cuda:0 is cut into instances (MIG)"));
  EXPECT_EQ(std::count(end.said.begin(), end.said.end(), '\n'), 1) << end.said;
}

TEST(CudaWorker, WithoutADriverItSaysSo) {
  CudaHarness harness;
  std::ofstream(harness.directory / "libcuda.so.1") << "not a library";
  const WorkerMachine machine(harness.directory.path(), "");
  const End end = EndOf(harness);
  EXPECT_EQ(end.code, kExitNoDriver);
  EXPECT_THAT(end.said, HasSubstr("no driver: cuda:0 was asked for, and libcuda.so.1 cannot be opened"));
}

TEST(CudaWorker, ALostGpuEndsIt) {
  const WorkerMachine machine("lost_after=40");
  CudaHarness harness;
  Link link = harness.StartAndAdopt();
  const auto copy = PlaceSmall(*harness.host, "m", 1, 1 << 20);
  while (true) {
    const auto swapped = link.Ask(SwapInOf(copy));
    if (swapped.code() != 0 || link.Ask(EvictOf("m")).code() != 0) break;
  }
  const WorkerDeath death = link.heard->AwaitDeath();
  ASSERT_TRUE(death.end.has_value());
  EXPECT_EQ(death.end->code, kExitDeviceLost) << death.ToString();
  EXPECT_THAT(death.last_words, HasSubstr("device lost: "));
}

// y = max(0, x) after many steps, between which a run can be cut.
proto::HostCopy PlaceSteps(transport::HostRegion& region, int steps) {
  proto::Model model = SmallModel();
  model.clear_steps();
  for (int i = 0; i < steps; ++i) {
    proto::Step& step = *model.add_steps();
    step.set_op("Relu");
    step.add_inputs(i == 0 ? "x" : "t" + std::to_string(i));
    step.add_outputs(i + 1 == steps ? "y" : "t" + std::to_string(i + 1));
  }
  return PlaceModel(region, "m", model, SmallWeights());
}

TEST(CudaWorker, ARunIsCutAtItsLimitAndTheNextOneIsServed) {
  const WorkerMachine machine("");
  CudaHarness harness;
  Link link = harness.StartAndAdopt();
  const proto::HostCopy copy = PlaceSteps(*harness.host, 40);
  ASSERT_EQ(link.Ask(SwapInOf(copy)).code(), 0);
  for (int round = 0; round < 4; ++round) {
    proto::WorkerOrder order = RunOf("m", 1);
    *order.mutable_run()->mutable_model() = copy;
    order.mutable_run()->set_run_limit_ns(1);  // passed at the first look, on any machine
    const auto cut = link.Ask(order);
    EXPECT_EQ(cut.code(), static_cast<int>(absl::StatusCode::kDeadlineExceeded)) << cut.message();
    EXPECT_THAT(cut.message(), HasSubstr("cut before step 4 of 40"));
    EXPECT_GT(cut.run().compute_ns(), 0);
    order.mutable_run()->clear_run_limit_ns();
    const auto ran = link.Ask(order);
    ASSERT_EQ(ran.code(), 0) << ran.message();
    EXPECT_THAT(Floats(ran.run().outputs(0).data().inlined()), testing::ElementsAre(0, 1, 2, 3));
  }
  EXPECT_EQ(link.Ask(DescribeOf()).code(), 0) << "the worker lives";
}

// An injected hang can be an illegal access instead.
TEST(CudaWorker, AnIllegalAccessEndsItAndTheNextOneServes) {
  const WorkerMachine machine("");
  setenv("TROUPE_CUDA_HANG", "illegal-access", 1);
  {
    CudaHarness harness;
    harness.command.allow_faults = true;
    Link link = harness.StartAndAdopt();
    link.Send(FaultOf(proto::FaultOrder::HANG));
    const WorkerDeath death = link.heard->AwaitDeath();
    ASSERT_TRUE(death.end.has_value());
    EXPECT_EQ(death.end->code, kExitDeviceLost) << death.ToString();
    EXPECT_THAT(death.last_words, HasSubstr("CUDA_ERROR_ILLEGAL_ADDRESS"));
  }
  CudaHarness harness;
  Link link = harness.StartAndAdopt();
  EXPECT_EQ(link.Ask(SwapInOf(PlaceSmall(*harness.host, "m"))).code(), 0);
  unsetenv("TROUPE_CUDA_HANG");
}

// Two workers, each on a GPU of its own; their host copies differ, so that a run's result tells from which
// copy its weights came.
class CudaBroadcasts : public testing::Test {
 protected:
  static constexpr std::size_t kWeights = 8 << 20;
  CudaBroadcasts() {
    // The folder in which the fake NCCL leaves the socket of a worker that is killed.
    setenv("TMPDIR", sender_.directory.path().c_str(), 1);
    receiver_.command.gpu = 1;
    receiver_.command.socket = sender_.directory / "worker-1";
    sender_.command.group = receiver_.command.group = MiB(2);
  }
  void Start() {
    sent_ = PlaceSmall(*sender_.host, "m", 1, kWeights, kWeights - 4096);
    own_ = PlaceSmall(*receiver_.host, "m", 5, kWeights, kWeights - 4096);
    there_ = sender_.StartAndAdopt();
    here_ = receiver_.StartAndAdopt();
    ASSERT_EQ(here_.Ask(PrepareOf(own_, 1)).code(), 0);
  }
  [[nodiscard]] proto::WorkerOrder OrderFor(const proto::HostCopy& copy) const {
    proto::WorkerOrder order = SwapInOf(copy);
    proto::Broadcast& broadcast = *order.mutable_swap_in()->mutable_broadcast();
    broadcast.set_meeting("meeting");
    broadcast.add_gpus(0);
    broadcast.add_gpus(1);
    broadcast.set_socket(there_.connection->description().broadcast_socket());
    return order;
  }
  ~CudaBroadcasts() override { unsetenv("TMPDIR"); }
  CudaHarness sender_{"cuda:0"};
  CudaHarness receiver_{"cuda:1"};
  proto::HostCopy sent_;
  proto::HostCopy own_;
  Link there_;
  Link here_;
};

TEST_F(CudaBroadcasts, AModelComesToBothGpusOverOneCommunicator) {
  const WorkerMachine machine("devices=2");
  setenv("TROUPE_FAKE_NCCL_MOST", "1", 1);  // a second one could not be made
  Start();
  unsetenv("TROUPE_FAKE_NCCL_MOST");
  EXPECT_TRUE(here_.connection->description().broadcasts());
  for (int round = 0; round < 2; ++round) {
    proto::WorkerOrder receive = OrderFor(own_);
    proto::WorkerOrder send = OrderFor(sent_);
    for (proto::WorkerOrder* order : {&receive, &send})
      order->mutable_swap_in()->mutable_broadcast()->set_meeting("meeting" + std::to_string(round));
    const std::uint64_t received = here_.Send(receive);
    const auto sent = there_.Ask(send);
    ASSERT_EQ(sent.code(), 0) << sent.message();
    const auto outcome = here_.heard->Await(received);
    ASSERT_EQ(outcome.code(), 0) << outcome.message();
    EXPECT_EQ(outcome.bytes(), 0u) << "no byte of the model came from the host";
    EXPECT_EQ(outcome.swap_in().group_ns_size(), 4);
    EXPECT_THAT(Floats(here_.Ask(RunOf("m", 1)).run().outputs(0).data().inlined()), ElementsAre(1, 3, 5, 0));
    EXPECT_EQ(here_.Ask(EvictOf("m")).code(), 0);
  }
}

TEST_F(CudaBroadcasts, WithoutTheLibraryModelsComeFromTheHost) {
  const WorkerMachine machine("devices=2");
  setenv("TROUPE_FAKE_NCCL_VERSION", "20000", 1);
  Start();
  unsetenv("TROUPE_FAKE_NCCL_VERSION");
  EXPECT_FALSE(here_.connection->description().broadcasts());
  const auto outcome = here_.Ask(OrderFor(own_));
  ASSERT_EQ(outcome.code(), 0) << outcome.message();
  EXPECT_EQ(outcome.bytes(), kWeights);
  EXPECT_THAT(Floats(here_.Ask(RunOf("m", 1)).run().outputs(0).data().inlined()), ElementsAre(5, 7, 9, 0));
}

TEST_F(CudaBroadcasts, ASenderThatIsKilledIsReplacedByTheHost) {
  const WorkerMachine machine("devices=2");
  Start();
  ASSERT_EQ(there_.Ask(SwapInOf(sent_)).code(), 0);
  const std::uint64_t received = here_.Send(OrderFor(own_));
  // The worker is killed before it has heard of the broadcast, or in the middle of it.
  there_.Send(OrderFor(sent_));
  ASSERT_TRUE(there_.connection->Kill().ok());
  there_.heard->AwaitDeath();
  const auto outcome = here_.heard->Await(received);
  ASSERT_EQ(outcome.code(), 0) << outcome.message();
  const auto ran = here_.Ask(RunOf("m", 1));
  ASSERT_EQ(ran.code(), 0) << ran.message();
  EXPECT_EQ(here_.Ask(EvictOf("m")).code(), 0);
  EXPECT_EQ(here_.Ask(DescribeOf()).description().free_bytes(), 16u << 20);
}

}  // namespace
}  // namespace troupe::gpu::test
