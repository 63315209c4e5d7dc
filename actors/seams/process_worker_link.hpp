// PROCESS WORKER LINK: the production form of WorkerLink: a troupe-gpu-worker process, spoken to over
// shared-memory rings.
//
// Starting, adopting and waiting for an end block, so they run on the node's work pool; outcomes arrive on
// the node's one LinkReader thread. The device memory of a virtual GPU is made here once and given to each
// worker of this GPU in turn.
#pragma once

#include <memory>
#include <string>

#include "actors/core/work_pool.hpp"
#include "actors/seams/worker_link.hpp"
#include "gpu/worker/link_reader.hpp"
#include "gpu/worker/worker_process.hpp"
#include "transport/arena_exports.hpp"

namespace troupe::actors {

// What the workers of one node share. Outlives the links.
struct WorkerSite {
  gpu::LinkReader& reader;
  WorkPool& pool;
  int host_region = -1;  // descriptors to give away at adoption
  int links = -1;
  std::string arena_root;          // below it lie the sockets of the arenas that a worker may read
  std::uint64_t daemon_epoch = 0;  // grows with every start of the daemon: the newest daemon wins a worker
  std::string host;                // our host id
  // Where, and by whom, workers' outputs are served to other hosts; empty and null: nowhere.
  std::string endpoint;
  std::shared_ptr<transport::ArenaExports> exports;
};

struct ProcessWorkerOptions {
  gpu::WorkerCommand command;
  Bytes memory = GiB(1);  // of a virtual GPU
  Duration adopt_timeout = std::chrono::seconds(5);
};

std::unique_ptr<WorkerLink> MakeProcessWorkerLink(const WorkerSite& site, ProcessWorkerOptions options);

}  // namespace troupe::actors
