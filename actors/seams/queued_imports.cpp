#include "actors/seams/queued_imports.hpp"

#include <chrono>
#include <utility>

namespace troupe::actors {

namespace {

Time Now() {
  return Time(std::chrono::duration_cast<Duration>(std::chrono::steady_clock::now().time_since_epoch()));
}

}  // namespace

QueuedImports::QueuedImports(cluster::ImportQueue::Limits limits, Import import)
    : import_(std::move(import)), queue_(limits), pool_(limits.jobs) {}

void QueuedImports::Add(const ModelFile& file, const std::string& client, Bytes size, Done done) {
  std::vector<Done> without_place;
  absl::Status why = absl::ResourceExhaustedError(
      "the queue of imports is full, this client has the most files in it, and another client needed a "
      "place; "
      "try again later");
  {
    const std::lock_guard lock(mutex_);
    const auto now = Now();
    const auto admitted = queue_.Add(client, size, now);
    if (admitted.ok()) {
      for (const Ticket ticket : admitted->dropped)
        without_place.push_back(std::move(entries_.extract(ticket).mapped().done));
      entries_.emplace(admitted->ticket, Entry{file, std::move(done), now, false, {}});
      BeginAll();
    } else {
      without_place.push_back(std::move(done));
      why = admitted.status();
    }
    refused_ += without_place.size();
  }
  for (const auto& refuse : without_place) refuse(why);
}

void QueuedImports::BeginAll() {
  while (const auto ticket = queue_.Begin(Now())) {
    entries_.at(*ticket).running = true;
    // As many threads as imports run at the same time: it is taken at once. Only a pool that stops refuses.
    static_cast<void>(pool_.Post([this, ticket = *ticket] { Run(ticket); }));
  }
}

void QueuedImports::Run(Ticket ticket) {
  ModelFile file;
  {
    const std::lock_guard lock(mutex_);
    file = entries_.at(ticket).file;
  }
  auto record = import_(file, [this, ticket](const gpu::ImportProgress& progress) {
    const std::lock_guard lock(mutex_);
    entries_.at(ticket).progress = progress;
  });
  Done done;
  {
    const std::lock_guard lock(mutex_);
    done = std::move(entries_.at(ticket).done);
    entries_.erase(ticket);
    queue_.End(ticket);
    BeginAll();
  }
  done(std::move(record));
}

std::vector<proto::ImportStatus> QueuedImports::Describe(const std::string& onnx_digest) const {
  const std::lock_guard lock(mutex_);
  const auto now = Now();
  std::vector<proto::ImportStatus> statuses;
  const auto describe = [&](const Entry& entry, std::size_t ahead) {
    if (!onnx_digest.empty() && entry.file.onnx_digest != onnx_digest) return;
    auto& status = statuses.emplace_back();
    status.set_onnx_digest(entry.file.onnx_digest);
    status.set_stage(entry.running ? gpu::StageName(entry.progress.stage) : "waiting");
    status.set_ahead(static_cast<std::uint32_t>(ahead));
    status.set_age_ns((now - entry.asked).count());
    status.set_steps(entry.progress.steps);
    status.set_steps_total(entry.progress.steps_total);
  };
  for (const auto& [ticket, entry] : entries_)
    if (entry.running) describe(entry, 0);
  const auto order = queue_.Order(now);
  for (std::size_t i = 0; i < order.size(); ++i) describe(entries_.at(order[i]), i);
  return statuses;
}

ImportCounts QueuedImports::counts() const {
  const std::lock_guard lock(mutex_);
  return {queue_.waiting(), queue_.running(), refused_};
}

}  // namespace troupe::actors
