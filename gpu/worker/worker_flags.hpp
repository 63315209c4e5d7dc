// WORKER FLAGS: the command line of troupe-gpu-worker, as StartWorker (worker_process.hpp) writes it.
#pragma once

#include <CLI/CLI.hpp>
#include <cstddef>
#include <cstdint>
#include <string>

#include "gpu/worker/worker_process.hpp"

namespace troupe::gpu {

// The command, with times and sizes still as their texts.
struct WorkerFlags : WorkerSettings {
  WorkerFlags();  // what holds where nothing is said

  std::string device = "virtual:0";
  std::string socket;
  std::string node;
  std::uint32_t gpu = 0;
  std::string lease = "30s";
  std::string arena = "256MiB";
  std::string quota = "0";
  std::string group = "0";
  std::string window = "1s";
  std::string gate;
  std::size_t gate_slot = 0;
  std::string block = "0";
};

void AddFlags(CLI::App& app, WorkerFlags& flags);

}  // namespace troupe::gpu
