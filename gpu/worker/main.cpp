// troupe-gpu-worker: what its flags say, signals, and the device that the worker will open.
#include <signal.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "base/check.hpp"
#include "base/status.hpp"
#include "gpu/device/cuda_plugin.hpp"
#include "gpu/device/virtual_device.hpp"
#include "gpu/engine/plan.hpp"
#include "gpu/jail/forbidden_calls.hpp"
#include "gpu/jail/jail.hpp"
#include "gpu/nvml/management.hpp"
#include "gpu/worker/exit_codes.hpp"
#include "gpu/worker/last_words.hpp"
#include "gpu/worker/meter_folder.hpp"
#include "gpu/worker/meter_page.hpp"
#include "gpu/worker/worker.hpp"
#include "gpu/worker/worker_flags.hpp"
#include "proto/gpu_sharing.hpp"
#include "transport/host_id.hpp"

namespace troupe::gpu {
namespace {

// libgomp reads its environment while it is loaded, before main: set it and begin anew.
void WaitPassively(char** argv) {
  if (getenv("OMP_WAIT_POLICY") != nullptr) return;
  (void)setenv("OMP_WAIT_POLICY", "passive", 1);
  (void)execv("/proc/self/exe", argv);
}

// A stream for each run that could compute at a time; they are made when they are needed first.
std::size_t StreamsFor(std::uint32_t concurrency) {
  return std::max<std::size_t>(concurrency, proto::kMostInstances);
}

// Nothing when no kind of device has such a name.
std::optional<DeviceKind> KindOf(const WorkerFlags& flags) {
  const auto colon = flags.device.find(':');
  if (colon == std::string::npos) return std::nullopt;
  return FindNamed(kDeviceKinds, std::string_view(flags.device).substr(0, colon));
}

absl::StatusOr<DeviceOpener> VirtualOpener(const WorkerFlags& flags) {
  VirtualDeviceOptions options;
  options.name = flags.device;
  options.pack_target = PackTarget();
  options.link_in = LinkInName(flags.gpu);
  options.link_out = LinkOutName(flags.gpu);
  options.link_from = [gpu = flags.gpu](std::uint32_t from) { return PeerLinkName(from, gpu); };
  // Beginning as the sockets of arenas do, so that the next worker removes it with them.
  options.broadcast_socket = flags.socket + ".aw";
  options.threads = flags.threads;
  options.concurrency = StreamsFor(flags.concurrency);
  options.sms = flags.sms;
  options.builder = Plan::Build;
  if (!flags.profile.empty()) {
    TROUPE_ASSIGN_OR_RETURN(options.profile, ComputeProfile::Read(flags.profile));
  }
  if (flags.compute == ComputeMode::kTimed) options.timed = options.profile;
  return DeviceOpener([options](DeviceParts parts) -> absl::StatusOr<std::unique_ptr<Device>> {
    TROUPE_ASSIGN_OR_RETURN(
        auto memory,
        transport::MemoryFile::Open(std::move(parts.memory), transport::MemoryFile::Access::kReadWrite));
    VirtualDeviceOptions made = options;
    made.reserved = parts.record;
    return MakeVirtualDevice(made, std::move(memory), std::move(parts.links));
  });
}

// A file for each unit of memory that is shared with another worker.
void RaiseDescriptorLimit() {
  rlimit files{};
  if (getrlimit(RLIMIT_NOFILE, &files) != 0 || files.rlim_cur == files.rlim_max) return;
  files.rlim_cur = files.rlim_max;
  (void)setrlimit(RLIMIT_NOFILE, &files);
}

// As GPUs are counted everywhere here, also by the management library: in the order of the bus. The driver
// reads this when it is started.
void CountGpusByBus() {
  (void)setenv("CUDA_DEVICE_ORDER", "PCI_BUS_ID", 1);
}

// Whose end would help, as far as the driver tells.
std::string HoldersOf(int ordinal) {
  const auto management = GpuManagement::OpenAsProgramsDo();
  if (!management.ok() || ordinal >= static_cast<int>((*management)->gpus())) return {};
  const auto holders = (*management)->Holders(static_cast<std::uint32_t>(ordinal));
  return holders.ok() && !holders->empty() ? absl::StrCat("; ", Describe(*holders)) : std::string();
}

// A real GPU is opened before anybody adopts: what is wrong with it is an exit code, not a failed adoption.
CudaOpened OpenCudaDevice(const WorkerFlags& flags, Bytes quota) {
  CudaOptions options;
  options.name = flags.device;
  options.memory = quota;
  options.concurrency = StreamsFor(flags.concurrency);
  options.repeated = flags.repeated;
  options.addresses = flags.addresses;
  options.kernels = flags.kernels;
  if (!absl::SimpleAtoi(absl::StripPrefix(flags.device, "cuda:"), &options.ordinal) || options.ordinal < 0) {
    return {.trouble = CudaTrouble::kUsage,
            .why = absl::StrCat("--device ", flags.device, ": must be a number of a GPU such as cuda:0")};
  }
  if (flags.compute != ComputeMode::kReal) {
    return {.trouble = CudaTrouble::kUsage,
            .why = absl::StrCat("--compute ", std::string(NameIn(kComputeModes, flags.compute)), ": ",
                                flags.device, " computes real results")};
  }
  RaiseDescriptorLimit();
  CountGpusByBus();
  if (const std::string parts = WhyInParts(options.ordinal); !parts.empty()) {
    return {.trouble = CudaTrouble::kTaken, .why = absl::StrCat(Name(CudaTrouble::kTaken), ": ", parts)};
  }
  CudaOpened opened = OpenCuda(CudaPluginPath(), options);
  if (opened.trouble == CudaTrouble::kBusy) opened.why += HoldersOf(options.ordinal);
  return opened;
}

// Hands over what is open already, at the first adoption.
DeviceOpener OpenerOf(std::unique_ptr<Device> device) {
  return [held = std::make_shared<std::unique_ptr<Device>>(std::move(device))](
             DeviceParts) -> absl::StatusOr<std::unique_ptr<Device>> {
    TROUPE_CHECK(*held != nullptr, "a device is opened once");
    return std::move(*held);
  };
}

absl::StatusOr<SwapOptions> SwapOptionsOf(const WorkerFlags& flags) {
  SwapOptions options{flags.swap, flags.link_sharing, {}, {}, flags.batch};
  TROUPE_RETURN_IF_ERROR(FindSwapPolicy(options.swap).status());
  TROUPE_RETURN_IF_ERROR(FindLinkSharing(options.sharing).status());
  if (!ParseBytes(flags.group, options.group) || (options.group > Bytes(0) && options.group < KiB(4)) ||
      options.group > GiB(4)) {
    return absl::InvalidArgumentError(
        absl::StrCat("--group ", flags.group, ": must be 0 or a size from 4KiB to 4GiB"));
  }
  if (!ParseBytes(flags.block, options.block) || (options.block > Bytes(0) && options.block < KiB(4)) ||
      options.block > GiB(4)) {
    return absl::InvalidArgumentError(
        absl::StrCat("--block ", flags.block, ": must be 0 or a size from 4KiB to 4GiB"));
  }
  return options;
}

absl::StatusOr<SharingOptions> SharingOptionsOf(const WorkerFlags& flags) {
  SharingOptions options{.name = flags.sharing, .concurrency = flags.concurrency};
  TROUPE_ASSIGN_OR_RETURN(options.policy, FindSharingPolicy(flags.sharing));
  if (!ParseDuration(flags.window, options.window) || options.window < kShortestWindow ||
      options.window > kLongestWindow) {
    return absl::InvalidArgumentError(absl::StrCat("--quota-window ", flags.window, ": must be a time from ",
                                                   FormatDuration(kShortestWindow), " to ",
                                                   FormatDuration(kLongestWindow)));
  }
  return options;
}

absl::StatusOr<WorkerOptions> OptionsOf(const WorkerFlags& flags) {
  WorkerOptions options;
  options.socket = flags.socket;
  options.node = flags.node;
  options.gpu = flags.gpu;
  options.allow_faults = flags.allow_faults;
  if (!flags.socket.starts_with('/')) {
    return absl::InvalidArgumentError(absl::StrCat("--socket ", flags.socket, ": must be an absolute path"));
  }
  if (!ParseDuration(flags.lease, options.lease) || options.lease < Duration(0)) {
    return absl::InvalidArgumentError(absl::StrCat("--lease ", flags.lease, ": must be a time such as 30s"));
  }
  if (!ParseBytes(flags.arena, options.arena) || options.arena < MiB(1) || options.arena > GiB(64)) {
    return absl::InvalidArgumentError(
        absl::StrCat("--arena ", flags.arena, ": must be a size from 1MiB to 64GiB"));
  }
  options.memory.policy = flags.memory;
  options.memory.addresses = flags.addresses;
  TROUPE_RETURN_IF_ERROR(FindMemoryPolicy(flags.memory).status());
  if (!ParseBytes(flags.quota, options.memory.quota)) {
    return absl::InvalidArgumentError(absl::StrCat("--quota ", flags.quota, ": must be a size such as 8GiB"));
  }
  TROUPE_ASSIGN_OR_RETURN(options.swap, SwapOptionsOf(flags));
  TROUPE_ASSIGN_OR_RETURN(options.sharing, SharingOptionsOf(flags));
  options.intermediates.name = flags.intermediates;
  TROUPE_RETURN_IF_ERROR(FindIntermediates(flags.intermediates).status());
  options.virtual_device = KindOf(flags) == DeviceKind::kVirtual;
  if (options.virtual_device) {
    TROUPE_ASSIGN_OR_RETURN(options.open_device, VirtualOpener(flags));
  }
  return options;
}

// Blocked in every thread that follows; read by the main loop.
int TakeSignals() {
  sigset_t signals;
  (void)sigemptyset(&signals);
  (void)sigaddset(&signals, SIGTERM);
  (void)sigaddset(&signals, SIGINT);
  (void)sigprocmask(SIG_BLOCK, &signals, nullptr);
  (void)signal(SIGPIPE, SIG_IGN);
  return signalfd(-1, &signals, SFD_CLOEXEC | SFD_NONBLOCK);
}

int Complain(const absl::Status& status, int code) {
  std::fprintf(stderr, "troupe-gpu-worker: %s\n", std::string(status.message()).c_str());
  return code;
}

// A worker whose jail has a gap serves all the same, and says so once.
absl::Status NoteJail(const absl::StatusOr<JailReport>& report) {
  if (!report.ok()) return report.status();
  if (!report->holds())
    std::fprintf(stderr, "troupe-gpu-worker: its jail does not hold: this machine lacks %s\n",
                 report->Missing().c_str());
  return absl::OkStatus();
}

// Before the first thread: what is given up here is each thread's own.
absl::Status EnterVirtualJail(const WorkerFlags& flags) {
  (void)transport::HostId();  // remembers what it reads
  TellOfForbiddenCalls(WriteForbiddenCall);
  return NoteJail(
      EnterWorkerJail(std::filesystem::path(flags.socket).parent_path().string(), {"/sys/devices/system"}));
}

int Main(const WorkerFlags& flags) {
  if (!KindOf(flags)) {
    return Complain(absl::NotFoundError(absl::StrCat("--device ", flags.device,
                                                     ": this program knows virtual:N and cuda:N; write "
                                                     "--device virtual:0 or --device cuda:0")),
                    kExitNoDevice);
  }
  absl::StatusOr<WorkerOptions> options = OptionsOf(flags);
  if (!options.ok()) return Complain(options.status(), kExitUsage);
  const int signals = TakeSignals();
  absl::StatusOr<std::unique_ptr<MeterWriter>> meter = MeterWriter::Create(NewMeterPath(flags.socket));
  if (!meter.ok()) return Complain(meter.status(), kExitNotNow);
  options->meter = *std::move(meter);
  if (!flags.gate.empty()) {
    absl::StatusOr<std::unique_ptr<GatePage>> gate = GatePage::Open(flags.gate, flags.gate_slot);
    if (!gate.ok()) return Complain(gate.status(), kExitNotNow);
    options->gate = *std::move(gate);
  }
  if (options->virtual_device) {
    if (const absl::Status jailed = EnterVirtualJail(flags); !jailed.ok())
      return Complain(jailed, kExitNotNow);
  } else {
    if (const absl::Status given = GiveUpCapabilities(); !given.ok()) return Complain(given, kExitNotNow);
    CudaOpened opened = OpenCudaDevice(flags, options->memory.quota);
    if (opened.device == nullptr)
      return Complain(absl::UnavailableError(opened.why), ExitCodeOf(opened.trouble));
    std::fprintf(stderr, "troupe-gpu-worker: %s\n", opened.summary.c_str());
    if (const std::string& remark = opened.device->info().remark; !remark.empty())
      std::fprintf(stderr, "troupe-gpu-worker: %s: %s\n", flags.device.c_str(), remark.c_str());
    options->open_device = OpenerOf(std::move(opened.device));
    if (const absl::Status jailed = NoteJail(EnterDriverJail()); !jailed.ok())
      return Complain(jailed, kExitNotNow);
  }
  absl::StatusOr<std::unique_ptr<Worker>> worker = Worker::Create(*options);
  if (!worker.ok()) {
    const absl::Status& why = worker.status();
    if (absl::IsAlreadyExists(why)) return Complain(why, kExitSocketInUse);
    return Complain(why,
                    absl::IsResourceExhausted(why) || absl::IsUnavailable(why) ? kExitNotNow : kExitUsage);
  }
  const int code = (*worker)->Run(signals);
  if ((*worker)->stuck()) _exit(code);
  return code;
}

}  // namespace
}  // namespace troupe::gpu

int main(int argc, char** argv) {
  troupe::gpu::WaitPassively(argv);
  CLI::App app("Owns one GPU for a Troupe node: adopted by the node's daemon at a Unix socket.",
               "troupe-gpu-worker");
  troupe::gpu::WorkerFlags flags;
  troupe::gpu::AddFlags(app, flags);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : troupe::gpu::kExitUsage;
  }
  return troupe::gpu::Main(flags);
}
