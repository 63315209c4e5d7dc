// WORKER LINK STATE: what a process worker link shares with the pool's jobs and the reader's handlers, which
// may still run when the link is gone. Private to process_worker_link.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>

#include "actors/seams/process_worker_link.hpp"
#include "transport/unix_socket.hpp"

namespace troupe::actors {

// THE KEEPER of a virtual GPU's memory: what lasts beyond its workers, and is given to the next one. It ends with
// this process, unless a worker lives on: that one hands it back.
struct KeptMemory {
  transport::UniqueFd file;
  std::string key;  // that has left traces in it
  Bytes record;     // at its end, of the weights in it (gpu/worker/weight_record.hpp)
  int failed = 0;   // workers in a row that began with it and did not come up
  // What a worker measured of its link; zero: nothing yet.
  std::uint64_t group_bytes = 0;
  google::protobuf::RepeatedPtrField<proto::LinkPoint> link_curve;

  // Workers that what lies there may have kept from coming up; the next one begins with new memory.
  static constexpr int kMostFailed = 2;

  // For a worker that serves this key: without what another key has left. A worker that is about to begin
  // (`begins`) can be given memory with a record instead of some without.
  absl::Status Ready(const ProcessWorkerOptions& options, const std::string& runtime, bool begins);
  void Offer(const ProcessWorkerOptions& options, proto::AdoptHello& hello) const;
  void Learn(const proto::WorkerDescription& worker, transport::UniqueFd memory);
};

// Holds no reader: the reader's thread may be the last to let go of this, and cannot wait for its own end.
struct LinkState {
  LinkState(const WorkerSite& s, ProcessWorkerOptions o);

  // An incarnation's end is told once, by the thread that notices it first.
  void TellDeath(std::uint64_t life, int code, int signal, const std::string& last_words);

  const WorkerSite site;
  const ProcessWorkerOptions options;
  std::mutex mutex;
  WorkerLink::Events events;  // guarded by mutex; empty after the link's end
  std::uint64_t incarnation = 0;
  std::string runtime;  // whom the next adopted worker is to serve
  std::shared_ptr<gpu::WorkerConnection> connection;
  std::shared_ptr<gpu::WorkerConnection> leaving;       // of a worker that is being adopted anew
  std::shared_ptr<const transport::HostRegion> region;  // that the worker maps
  std::shared_ptr<const void> exported;                 // its output arena, served to other hosts
  gpu::LinkReader::Id reading = 0;
  pid_t pid = 0;           // of the worker that we started or adopted; 0: none
  bool fresh = false;      // `pid` was started by us and has not been adopted
  bool death_told = true;  // of this incarnation
  bool ending = false;     // End waits for it
  KeptMemory memory;
  std::uint64_t sent = 0, answered = 0;
  gpu::ProgressWatch watch{options.watch};  // over `connection`'s worker
};
using LinkStatePtr = std::shared_ptr<LinkState>;

// What the reader's thread calls for a worker of that incarnation.
[[nodiscard]] std::shared_ptr<gpu::LinkHandler> MakeLinkHandler(LinkStatePtr state,
                                                                std::uint64_t incarnation);

}  // namespace troupe::actors
