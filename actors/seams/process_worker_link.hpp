// PROCESS WORKER LINK: the production form of WorkerLink: a troupe-gpu-worker process, spoken to over
// shared-memory rings.
//
// Starting, adopting and waiting for an end block, so they run on the node's work pool; outcomes arrive on
// the node's one LinkReader thread. The device memory of a virtual GPU is made here once and given to each
// worker of this GPU in turn, with the record of the weights in it, unless it has served another key meanwhile.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "actors/core/work_pool.hpp"
#include "actors/seams/worker_link.hpp"
#include "gpu/worker/control_page.hpp"
#include "gpu/worker/link_reader.hpp"
#include "gpu/worker/worker_process.hpp"
#include "transport/arena_exports.hpp"
#include "transport/host_region.hpp"

namespace troupe::actors {

// What the workers of one node share. Outlives the links.
struct WorkerSite {
  // Each link keeps it: executors end after the role that started them.
  std::shared_ptr<gpu::LinkReader> reader;
  WorkPool& pool;
  // The host region that a worker maps, by whom it serves (node::RuntimeName). On any thread.
  std::function<absl::StatusOr<std::shared_ptr<transport::HostRegion>>(const std::string& runtime)> region_of;
  int links = -1;                  // a descriptor to give away at adoption
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
  // The weights in it, and what was measured of the link, outlive a worker; else the next one begins anew.
  bool keep_weights = true;
  Duration adopt_timeout = std::chrono::seconds(5);
  // What of a busy worker may stand still for how long; each engine of its device by itself. A run that waits
  // for its weights moves: when they do not come it is the copy that stands still.
  gpu::ProgressWatch::Limits watch;
  // What is wrong with its device, beyond what the worker itself sees; empty: nothing. Null: unknown.
  std::function<std::string()> problem;
  // Told now and then how many connections the worker's sockets have refused since it began. Any thread.
  std::function<void(std::uint64_t)> refused;
};

std::unique_ptr<WorkerLink> MakeProcessWorkerLink(const WorkerSite& site, ProcessWorkerOptions options);

}  // namespace troupe::actors
