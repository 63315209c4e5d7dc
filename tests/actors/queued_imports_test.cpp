// Imports run on threads of their own, in the order of the queue.
#include "actors/seams/queued_imports.hpp"

#include <gtest/gtest.h>

#include <condition_variable>
#include <future>
#include <memory>
#include <set>
#include <string>
#include <vector>

namespace troupe::actors {
namespace {

// Imports that end when the test says so.
class Imports {
 public:
  explicit Imports(cluster::ImportQueue::Limits limits)
      : imports_(limits, [this](const ModelFile& file, const gpu::OnImportProgress& on_progress) {
          return Import(file.onnx_digest, on_progress);
        }) {}
  ~Imports() {
    const std::lock_guard lock(mutex_);
    all_ = true;
    changed_.notify_all();
  }

  using Ended = std::future<absl::Status>;
  Ended Add(const std::string& digest, const std::string& client, Bytes size = KiB(1)) {
    auto promise = std::make_shared<std::promise<absl::Status>>();
    imports_.Add({digest}, client, size, [promise](const absl::StatusOr<proto::FunctionRecord>& record) {
      promise->set_value(record.status());
    });
    return promise->get_future();
  }
  void AwaitBegun(const std::string& digest) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return begun_.contains(digest); });
  }
  void Finish(const std::string& digest) {
    const std::lock_guard lock(mutex_);
    finished_.insert(digest);
    changed_.notify_all();
  }
  // Each import as "digest stage ahead", where `ahead` counts the imports before it.
  [[nodiscard]] std::vector<std::string> Describe(const std::string& digest = {}) const {
    std::vector<std::string> lines;
    for (const auto& status : imports_.Describe(digest))
      lines.push_back(status.onnx_digest() + " " + status.stage() + " " + std::to_string(status.ahead()));
    return lines;
  }
  [[nodiscard]] ImportCounts counts() const { return imports_.counts(); }

 private:
  absl::StatusOr<proto::FunctionRecord> Import(const std::string& digest,
                                               const gpu::OnImportProgress& on_progress) {
    on_progress({gpu::ImportProgress::Stage::kFolding, 120, 400});
    std::unique_lock lock(mutex_);
    begun_.insert(digest);
    changed_.notify_all();
    changed_.wait(lock, [&] { return all_ || finished_.contains(digest); });
    return proto::FunctionRecord();
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::set<std::string> begun_;
  std::set<std::string> finished_;
  bool all_ = false;
  QueuedImports imports_;
};

using Lines = std::vector<std::string>;

TEST(QueuedImports, OneClientsFilesWaitAndAnothersSmallOneRuns) {
  Imports imports({.jobs = 2});
  std::vector<Imports::Ended> bombs;
  for (int i = 0; i < 5; ++i) bombs.push_back(imports.Add("bomb-" + std::to_string(i), "attacker"));
  imports.AwaitBegun("bomb-0");
  EXPECT_EQ(imports.counts().running, 1u);
  EXPECT_EQ(imports.counts().waiting, 4u);
  auto tiny = imports.Add("tiny", "other");
  imports.AwaitBegun("tiny");
  EXPECT_EQ(imports.Describe(), (Lines{"bomb-0 folding 0", "tiny folding 0", "bomb-1 waiting 0",
                                       "bomb-2 waiting 1", "bomb-3 waiting 2", "bomb-4 waiting 3"}));
  EXPECT_EQ(imports.Describe("bomb-3"), Lines{"bomb-3 waiting 2"});
  EXPECT_TRUE(imports.Describe("unknown").empty());
  imports.Finish("tiny");
  EXPECT_TRUE(tiny.get().ok());
  for (std::size_t i = 0; i < bombs.size(); ++i) {
    imports.Finish("bomb-" + std::to_string(i));
    EXPECT_TRUE(bombs[i].get().ok());
  }
  EXPECT_EQ(imports.counts().running + imports.counts().waiting, 0u);
}

TEST(QueuedImports, AFullQueueRefusesAndCounts) {
  Imports imports({.jobs = 1, .client_files = 1});
  auto running = imports.Add("a", "client");
  imports.AwaitBegun("a");
  auto waiting = imports.Add("b", "client");
  EXPECT_EQ(imports.Add("c", "client").get().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(imports.counts().refused, 1u);
  auto other = imports.Add("d", "other");
  for (const char* digest : {"a", "b", "d"}) imports.Finish(digest);
  EXPECT_TRUE(running.get().ok());
  EXPECT_TRUE(waiting.get().ok());
  EXPECT_TRUE(other.get().ok());
}

TEST(QueuedImports, AClientWhosePlaceAnotherOneGetsIsAnswered) {
  Imports imports({.jobs = 1, .files = 2});
  auto running = imports.Add("a", "greedy");
  imports.AwaitBegun("a");
  auto first = imports.Add("b", "greedy");
  auto second = imports.Add("c", "greedy");
  auto other = imports.Add("d", "other");
  EXPECT_EQ(second.get().code(), absl::StatusCode::kResourceExhausted);
  for (const char* digest : {"a", "b", "d"}) imports.Finish(digest);
  EXPECT_TRUE(first.get().ok());
  EXPECT_TRUE(other.get().ok());
}

}  // namespace
}  // namespace troupe::actors
