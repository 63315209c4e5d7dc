#include "gpu/worker/worker_flags.hpp"

#include <array>
#include <cstddef>
#include <string>

#include "base/enum_names.hpp"
#include "gpu/memory/intermediates.hpp"
#include "gpu/memory/memory_policy.hpp"
#include "gpu/sharing/gate_page.hpp"
#include "gpu/sharing/sharing_policy.hpp"
#include "gpu/swap/swap_policy.hpp"

namespace troupe::gpu {

namespace {

// A flag that takes the name of one of the table's values.
template <class Value, std::size_t N>
void AddChoice(CLI::App& app, const std::string& flag, Value& value,
               const std::array<EnumName<Value>, N>& table, const std::string& help) {
  const auto set = [&](const std::string& name) { value = FindNamed(table, name).value_or(value); };
  app.add_option_function<std::string>(flag, set, help)
      ->check(CLI::IsMember(NameList(table)))
      ->default_str(std::string(NameIn(table, value)));
}

}  // namespace

WorkerFlags::WorkerFlags() {
  sms = 132;
  memory = kDefaultMemory;
  swap = kDefaultSwap;
  link_sharing = kDefaultLinkSharing;
  sharing = kDefaultSharing;
  intermediates = kDefaultIntermediates;
  batch = 6;
}

void AddFlags(CLI::App& app, WorkerFlags& flags) {
  app.add_option("--device", flags.device, "virtual:N, or cuda:N of the driver's GPUs")
      ->capture_default_str();
  app.add_option("--socket", flags.socket, "absolute path of the Unix socket to be adopted at")->required();
  app.add_option("--node", flags.node, "only this node's daemon may adopt; empty: any");
  app.add_option("--gpu", flags.gpu, "index of the GPU in its node")->capture_default_str();
  AddChoice(app, "--compute", flags.compute, kComputeModes, "real results, or the time that a profile says");
  app.add_option("--profile", flags.profile, "file of run times, and of how many of the SMs a model can use");
  app.add_option("--threads", flags.threads, "threads that each run computes with")
      ->check(CLI::Range(1, 256))
      ->capture_default_str();
  app.add_option("--concurrency", flags.concurrency, "runs without a share of the SMs that compute at a time")
      ->check(CLI::Range(1, 64))
      ->capture_default_str();
  app.add_option("--sms", flags.sms, "SMs of a virtual GPU, of which functions can have a share")
      ->check(CLI::Range(1, 1024))
      ->capture_default_str();
  app.add_option("--lease", flags.lease, "how long to wait for a daemon to come back")->capture_default_str();
  app.add_option("--arena", flags.arena, "room for outputs that were not read yet")->capture_default_str();
  app.add_option("--memory", flags.memory, "how device memory is handed out: a memory policy")
      ->capture_default_str();
  AddChoice(app, "--addresses", flags.addresses, kWeightAddresses,
            "weights in adjacent memory, or mapped block by block to one address per model");
  AddChoice(app, "--cuda-graphs", flags.repeated, kRepeatedLaunches,
            "on: a run of cuda:N that comes again is replayed from a recording; off: put there step by step");
  AddChoice(app, "--cuda-kernels", flags.kernels, kKernelForms,
            "our own kernels of cuda:N: whole, or persistent in as few blocks as its SMs run at a time");
  app.add_option("--quota", flags.quota, "device memory that this worker may use; 0: all of it")
      ->capture_default_str();
  app.add_option("--swap", flags.swap, "how models come: pageable, whole, per-tensor or grouped")
      ->capture_default_str();
  app.add_option("--link-sharing", flags.link_sharing,
                 "how transfers share the link: exclusive, shared or deadline")
      ->capture_default_str();
  app.add_option("--sharing", flags.sharing,
                 "how runs share the GPU: fast, fast-bypass, time-sharing, exclusive or racing")
      ->capture_default_str();
  app.add_option(
         "--intermediates", flags.intermediates,
         "where runs leave tensors for later runs: elastic, no-pressure, no-movement, static or host-only")
      ->capture_default_str();
  app.add_option("--quota-window", flags.window, "time of which functions have their quotas")
      ->capture_default_str();
  app.add_option("--gate", flags.gate,
                 "file in which the workers of one GPU say what they have of its SMs; empty: there is one");
  app.add_option("--gate-slot", flags.gate_slot, "this worker's place in it")
      ->check(CLI::Range(std::size_t{0}, GatePage::kSlots - 1))
      ->capture_default_str();
  app.add_option("--group", flags.group, "size of a swap's groups; 0: found by a probe")
      ->capture_default_str();
  app.add_option("--block", flags.block,
                 "size of the blocks in which the link is shared; 0: by the rate of the link")
      ->capture_default_str();
  app.add_option("--batch", flags.batch, "blocks with the device at a time")
      ->check(CLI::Range(1, 1 << 20))
      ->capture_default_str();
  app.add_flag("--allow-faults", flags.allow_faults, "misbehave when an order asks for it");
}

}  // namespace troupe::gpu
