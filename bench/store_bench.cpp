// What a commit of the metadata costs beside the disk's own time for the same bytes, and how long it takes to
// read a store at a start. bench/store.py runs it.
//   store_bench DIRECTORY commit ROUND_COMMITS   "commit_us P50 RAW_P50": commits and raw appends with
//   fdatasync of
//                                                the same bytes, alternating, one at a time
//   store_bench DIRECTORY writers N SECONDS      "commits_per_s RATE RAW_RATE": each of N threads waits for
//   its own store_bench DIRECTORY recover FUNCTIONS      "recover_ms MS": opened and read as the manager does
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "actors/manager/stored_catalogue.hpp"
#include "base/check.hpp"
#include "base/digest.hpp"
#include "proto/workflow.pb.h"
#include "storage/rocks_metadata_store.hpp"

namespace troupe::storage::bench {
namespace {

using Clock = std::chrono::steady_clock;

double MicrosSince(Clock::time_point begin) {
  return std::chrono::duration<double, std::micro>(Clock::now() - begin).count();
}

double Median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2),
                   values.end());
  return values[values.size() / 2];
}

std::unique_ptr<RocksMetadataStore> Open(const std::string& directory) {
  auto store = RocksMetadataStore::Open(directory);
  TROUPE_CHECK(store.ok(), std::string(store.status().message()).c_str());
  return *std::move(store);
}

// A step of a workflow run with an inline output, which is the most frequent commit.
Batch StepCommit(std::uint64_t number) {
  proto::CommitStep step;
  step.set_run(absl::StrCat("gateway-0-1a2b3c-", number));
  step.set_step("classify");
  auto& output = *step.add_outputs();
  output.mutable_spec()->set_name("probabilities");
  output.set_inlined(std::string(256, 'p'));
  Batch batch;
  batch.Put(Table::kSteps, absl::StrCat(step.run(), "/classify"), step);
  return batch;
}

// A file that is appended to and synced, which is the least that any log costs.
class RawLog {
 public:
  RawLog(const std::string& path, std::size_t bytes)
      : file_(::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600)), bytes_(bytes, 'r') {
    TROUPE_CHECK(file_ >= 0, "no file in the directory");
  }
  ~RawLog() { ::close(file_); }
  RawLog(const RawLog&) = delete;
  RawLog& operator=(const RawLog&) = delete;
  void Append() {
    const bool done = ::write(file_, bytes_.data(), bytes_.size()) == static_cast<ssize_t>(bytes_.size()) &&
                      ::fdatasync(file_) == 0;
    TROUPE_CHECK(done, "the raw log cannot be written");
  }

 private:
  const int file_;
  const std::string bytes_;
};

// The framing, RocksDB's record and batch headers beside key and value: 12 + 7 + 12 + 3 + the lengths of
// both.
constexpr std::size_t kAround = 40;

void MeasureCommits(const std::string& directory, std::uint64_t commits) {
  const auto store = Open(directory + "/store");
  RawLog raw(directory + "/raw", StepCommit(1'000'000).bytes().count() + kAround);
  std::vector<double> ours, theirs;
  for (std::uint64_t i = 0; i < commits; ++i) {
    auto begin = Clock::now();
    TROUPE_CHECK(CommitAndWait(*store, StepCommit(1'000'000 + i)).ok(), "a commit failed");
    ours.push_back(MicrosSince(begin));
    begin = Clock::now();
    raw.Append();
    theirs.push_back(MicrosSince(begin));
  }
  std::printf("commit_us %.3f %.3f\n", Median(ours), Median(theirs));
}

void MeasureWriters(const std::string& directory, int writers, double seconds) {
  const auto store = Open(directory + "/store");
  std::atomic<std::uint64_t> next{0}, done{0};
  std::atomic<bool> stop{false};
  const auto begin = Clock::now();
  std::vector<std::thread> threads;
  for (int i = 0; i < writers; ++i) {
    threads.emplace_back([&] {
      while (!stop) {
        TROUPE_CHECK(CommitAndWait(*store, StepCommit(next++)).ok(), "a commit failed");
        ++done;
      }
    });
  }
  std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
  const double rate = static_cast<double>(done) * 1e6 / MicrosSince(begin);
  stop = true;
  for (auto& thread : threads) thread.join();
  // One writer's appends, each synced: the rate without groups.
  RawLog raw(directory + "/raw", StepCommit(1'000'000).bytes().count() + kAround);
  const auto raw_begin = Clock::now();
  std::uint64_t appended = 0;
  for (; MicrosSince(raw_begin) < seconds * 1e6; ++appended) raw.Append();
  std::printf("commits_per_s %.1f %.1f\n", rate, static_cast<double>(appended) / seconds);
}

proto::FunctionRecord Function(std::uint64_t number) {
  proto::FunctionRecord record;
  record.mutable_key()->set_name(absl::StrCat("function-", number));
  record.mutable_key()->set_version("1");
  record.set_tenant(absl::StrCat("tenant-", number % 100));
  record.set_onnx_digest(Sha256Hex(absl::StrCat("onnx", number)));
  record.set_model_digest(Sha256Hex(absl::StrCat("model", number)));
  record.set_weights_digest(Sha256Hex(absl::StrCat("weights", number)));
  record.set_weights_bytes(100'000'000);
  record.set_loaded(true);
  record.set_revision(number + 1);
  for (auto* spec : {record.add_inputs(), record.add_outputs()}) {
    spec->set_name("tensor");
    for (const int dimension : {-1, 3, 224, 224}) spec->add_shape(dimension);
  }
  auto& packed = *record.add_packed();
  packed.set_target("avx512");
  packed.set_model_digest(Sha256Hex(absl::StrCat("packed", number)));
  packed.set_weights_digest(Sha256Hex(absl::StrCat("packed weights", number)));
  return record;
}

void MeasureRecovery(const std::string& directory, std::uint64_t functions) {
  {
    const auto store = Open(directory + "/store");
    TROUPE_CHECK(CommitAndWait(*store,
                               [] {
                                 Batch birth;
                                 birth.Put(Table::kSettings, "cluster", "bench");
                                 return birth;
                               }())
                     .ok(),
                 "a commit failed");
    // Each function has a commit of its own, as when it is deployed: the log has as many records.
    std::atomic<std::uint64_t> open{functions};
    for (std::uint64_t i = 0; i < functions; ++i) {
      Batch batch;
      batch.Put(Table::kFunctions, absl::StrCat("function-", i, "/1"), Function(i));
      while (functions - i + 4000 < open) std::this_thread::yield();
      store->Commit(std::move(batch), [&](const absl::Status& status) {
        TROUPE_CHECK(status.ok(), "a commit failed");
        --open;
      });
    }
    while (open > 0) std::this_thread::yield();
  }
  const auto begin = Clock::now();
  const auto store = Open(directory + "/store");
  const auto catalogue = actors::LoadCatalogue(*store, "bench");
  TROUPE_CHECK(catalogue.ok() && catalogue->functions().table().size() == functions,
               "not all functions are there");
  std::printf("recover_ms %.3f\n", MicrosSince(begin) / 1e3);
}

}  // namespace
}  // namespace troupe::storage::bench

int main(int argc, char** argv) {
  using namespace troupe::storage::bench;
  const std::string what = argc > 3 ? argv[2] : "";
  if (what == "commit") {
    MeasureCommits(argv[1], std::strtoull(argv[3], nullptr, 10));
  } else if (what == "writers" && argc > 4) {
    MeasureWriters(argv[1], std::atoi(argv[3]), std::atof(argv[4]));
  } else if (what == "recover") {
    MeasureRecovery(argv[1], std::strtoull(argv[3], nullptr, 10));
  } else {
    std::fprintf(stderr,
                 "usage: store_bench DIRECTORY (commit COMMITS | writers N SECONDS | recover FUNCTIONS)\n");
    return 2;
  }
  return 0;
}
