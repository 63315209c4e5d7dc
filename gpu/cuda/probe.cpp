#include "gpu/cuda/probe.hpp"

#include <dlfcn.h>
#include <fcntl.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/status.hpp"
#include "gpu/cuda/device.hpp"
#include "gpu/cuda/host_pins.hpp"
#include "transport/memory_file.hpp"
#include "transport/steady_clock.hpp"

namespace troupe::gpu::cuda {
namespace {

using transport::SteadyNow;

constexpr Bytes kTaken = MiB(128);      // of the GPU, for what is measured
constexpr Bytes kRegistered = MiB(64);  // of the host
constexpr int kUnits = 16;
constexpr Duration kPatience = std::chrono::seconds(20);
// As far from what a process has for itself as the addresses of models are.
constexpr std::uint64_t kAddress = std::uint64_t{1} << 45;

std::string Milliseconds(Duration took) {
  return absl::StrFormat("%.3f ms", ToSeconds(took) * 1e3);
}

class Prober {
 public:
  explicit Prober(const CudaOptions& options) : options_(options) {}
  Probed Run();

 private:
  void Say(std::string part, std::string name, std::string value) {
    probed_.facts.push_back({std::move(part), std::move(name), std::move(value)});
  }
  template <class Function>
  static Function* Call(void* library, const char* name) {
    return reinterpret_cast<Function*>(dlsym(library, name));
  }
  void Library(const std::string& file, const char* version);
  void Libraries();
  bool Describe();
  void Attributes(CUdevice device);
  void Units(Context& context);
  void HostMemory(Context& context);
  void Addresses(Context& context);
  void Measure(Device& device);
  void Copies(Device& device, Stream& stream);
  void Shares(Device& device, Stream& stream);
  absl::Status Computes(Device& device, Stream& stream, const char* op, const SmShare& share);

  const CudaOptions options_;
  Probed probed_;
  std::shared_ptr<const Driver> driver_;
  CUdevice device_ = 0;
};

// Each by the call that tells its version without a GPU.
void Prober::Library(const std::string& file, const char* version) {
  void* const library = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    const char* const error = dlerror();
    return Say("libraries", file, absl::StrCat("missing: ", error == nullptr ? "no reason given" : error));
  }
  std::string told = "there, of a version that it does not tell";
  if (auto* const number = Call<std::size_t()>(library, version); number != nullptr && file == options_.dnn)
    told = absl::StrCat("version ", number());
  if (auto* const property = Call<int(int, int*)>(library, version);
      property != nullptr && file != options_.dnn) {
    std::array<int, 3> parts{};
    for (int i = 0; i < 3; ++i) (void)property(i, &parts[static_cast<std::size_t>(i)]);
    told = absl::StrCat("version ", parts[0], ".", parts[1], ".", parts[2]);
  }
  Say("libraries", file, told);
}

void Prober::Libraries() {
  Library(options_.blas, "cublasGetProperty");
  Library(options_.dnn, "cudnnGetVersion");
  for (const auto& [file, without] : {std::pair(options_.blas_lt, "bias and Relu are kernels of their own"),
                                      std::pair(options_.nccl, "no broadcasts between GPUs")}) {
    const bool there = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL) != nullptr;
    Say("libraries", file, there ? "there" : absl::StrCat("missing: ", without));
  }
}

void Prober::Attributes(CUdevice device) {
#define TROUPE_ATTRIBUTE(name) std::pair(CU_DEVICE_ATTRIBUTE_##name, #name)
  for (const auto& [attribute, name] :
       {TROUPE_ATTRIBUTE(COMPUTE_CAPABILITY_MAJOR), TROUPE_ATTRIBUTE(COMPUTE_CAPABILITY_MINOR),
        TROUPE_ATTRIBUTE(MULTIPROCESSOR_COUNT), TROUPE_ATTRIBUTE(ASYNC_ENGINE_COUNT),
        TROUPE_ATTRIBUTE(COMPUTE_MODE), TROUPE_ATTRIBUTE(VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED),
        TROUPE_ATTRIBUTE(HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED),
        TROUPE_ATTRIBUTE(READ_ONLY_HOST_REGISTER_SUPPORTED), TROUPE_ATTRIBUTE(HOST_REGISTER_SUPPORTED),
        TROUPE_ATTRIBUTE(CAN_USE_64_BIT_STREAM_MEM_OPS), TROUPE_ATTRIBUTE(CAN_USE_STREAM_WAIT_VALUE_NOR),
        TROUPE_ATTRIBUTE(PAGEABLE_MEMORY_ACCESS), TROUPE_ATTRIBUTE(ECC_ENABLED)}) {
    int value = 0;
    const CUresult asked = driver_->cuDeviceGetAttribute(&value, attribute, device);
    Say("attributes", name, asked == CUDA_SUCCESS ? absl::StrCat(value) : driver_->Describe(asked));
  }
#undef TROUPE_ATTRIBUTE
}

// What can be asked before anything is made on the GPU, so that a GPU that is refused is described.
bool Prober::Describe() {
  const auto driver = Driver::Load(options_.driver);
  if (!driver.ok()) {
    Say("driver", options_.driver, std::string(driver.status().message()));
    return false;
  }
  driver_ = *driver;
  int version = 0;
  (void)driver_->cuDriverGetVersion(&version);
  Say("driver", "is for CUDA", absl::StrCat(version / 1000, ".", version % 1000 / 10));
  Say("driver", "this program was built for CUDA",
      absl::StrCat(CUDA_VERSION / 1000, ".", CUDA_VERSION % 1000 / 10, ", GPUs of sm_80 and later"));
  const CUresult started = driver_->cuInit(0);
  if (started != CUDA_SUCCESS) {
    Say("driver", "does not start", driver_->Describe(started));
    return false;
  }
  int count = 0;
  (void)driver_->cuDeviceGetCount(&count);
  Say("driver", "GPUs", absl::StrCat(count));
  if (driver_->cuDeviceGet(&device_, options_.ordinal) != CUDA_SUCCESS) return false;
  std::array<char, 128> name{};
  (void)driver_->cuDeviceGetName(name.data(), static_cast<int>(name.size()), device_);
  Say("gpu", "name", name.data());
  std::size_t bytes = 0;
  (void)driver_->cuDeviceTotalMem(&bytes, device_);
  Say("gpu", "memory", FormatBytes(Bytes(bytes)));
  Attributes(device_);
  return true;
}

// What making, mapping and giving back one unit of memory costs.
void Prober::Units(Context& context) {
  const Driver& driver = context.driver();
  CUmemAllocationProp properties{};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  properties.location.id = context.device();
  std::size_t least = 0;
  std::size_t unit = 0;
  (void)driver.cuMemGetAllocationGranularity(&least, &properties, CU_MEM_ALLOC_GRANULARITY_MINIMUM);
  if (driver.cuMemGetAllocationGranularity(&unit, &properties, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED) !=
      CUDA_SUCCESS)
    return;
  Say("units", "granularity",
      absl::StrCat(FormatBytes(Bytes(unit)), ", at least ", FormatBytes(Bytes(least))));
  std::vector<UnitHandle> units;
  const Time begin = SteadyNow();
  for (int i = 0; i < kUnits; ++i) {
    UnitHandle handle = 0;
    if (driver.cuMemCreate(&handle, unit, &properties, 0) != CUDA_SUCCESS) break;
    units.push_back(handle);
  }
  const Time made = SteadyNow();
  if (!units.empty()) {
    Say("units", "made, each", Milliseconds((made - begin) / static_cast<int>(units.size())));
    Time mapped_at = made;
    {
      const auto mapped = MappedUnits::Map(context, 0, Bytes(unit), units);
      mapped_at = SteadyNow();
      Say("units", "mapped with access, each",
          mapped.ok() ? Milliseconds((mapped_at - made) / static_cast<int>(units.size()))
                      : std::string(mapped.status().message()));
    }
    Say("units", "unmapped, each", Milliseconds((SteadyNow() - mapped_at) / static_cast<int>(units.size())));
  }
  for (const UnitHandle handle : units) (void)driver.cuMemRelease(handle);
}

// Each way of registering memory that is mapped for reading, as a worker maps the host region.
void Prober::HostMemory(Context& context) {
  const Driver& driver = context.driver();
  const auto file = transport::MemoryFile::Create("troupe-probe", kRegistered);
  if (!file.ok()) return Say("host memory", "a file of memory", std::string(file.status().message()));
  std::memset(file->data(), 1, file->size().count());
  const auto gibibyte = [](Duration took) {
    return absl::StrFormat("%.3f s for a GiB", ToSeconds(took) * static_cast<double>(GiB(1).count()) /
                                                   static_cast<double>(kRegistered.count()));
  };
  const auto registers = [&](const char* name, std::byte* memory, unsigned flags) {
    const Time begin = SteadyNow();
    const CUresult result =
        driver.cuMemHostRegister(memory, kRegistered.count(), CU_MEMHOSTREGISTER_PORTABLE | flags);
    const Duration took = SteadyNow() - begin;
    if (result == CUDA_SUCCESS) (void)driver.cuMemHostUnregister(memory);
    Say("host memory", name, result == CUDA_SUCCESS ? gibibyte(took) : driver.Describe(result));
  };
  registers("mapped for writing", file->data(), 0);
  const auto view = transport::MemoryFile::Open(transport::UniqueFd(fcntl(file->fd(), F_DUPFD_CLOEXEC, 0)),
                                                transport::MemoryFile::Access::kReadOnly);
  if (!view.ok()) return;
  registers("mapped for reading", view->data(), 0);
  registers("mapped for reading, as read-only", view->data(), CU_MEMHOSTREGISTER_READ_ONLY);
  HostPins pins(context);
  const Time begin = SteadyNow();
  const absl::Status pinned = pins.Register(view->bytes());
  Say("host memory", "as a worker does it",
      pinned.ok() ? gibibyte(SteadyNow() - begin) : std::string(pinned.message()));
  pins.Unregister(view->bytes());
  std::string why;
  const HostPins::Way way = HostPins::WayOfRegions(context, why);
  probed_.uses.push_back(
      absl::StrCat("Models are registered ", cuda::Describe(way), why.empty() ? "" : ": ", why, "."));
}

// Whether ranges of addresses are given where models want them.
void Prober::Addresses(Context& context) {
  const Driver& driver = context.driver();
  int given = 0;
  constexpr int kTries = 8;
  for (int i = 0; i < kTries; ++i) {
    const std::uint64_t wanted = kAddress + GiB(64).count() * static_cast<std::uint64_t>(i);
    CUdeviceptr address = 0;
    if (driver.cuMemAddressReserve(&address, MiB(64).count(), 0, wanted, 0) != CUDA_SUCCESS) continue;
    given += address == wanted ? 1 : 0;
    (void)driver.cuMemAddressFree(address, MiB(64).count());
  }
  Say("addresses", "given where they were asked for", absl::StrCat(given, " of ", kTries));
  probed_.uses.push_back(
      given == kTries ? "Models can be mapped to one address on every GPU (--addresses mapped)."
                      : "Models mapped to addresses of their own are put elsewhere where one is not given.");
}

// The best of a few copies, back to back, by the time of the whole.
void Prober::Copies(Device& device, Stream& stream) {
  const Bytes largest = std::min(MiB(64), Bytes(device.memory().largest.count()));
  const auto room = device.Allocate(largest);
  if (!room.ok()) return;
  std::vector<std::byte> host(largest.count());
  const bool registered = device.RegisterHost(host).ok();
  for (Bytes size = KiB(256); size <= largest; size = size * 4) {
    double best_in = 0;
    double best_out = 0;
    constexpr int kCopies = 4;
    for (int round = 0; round < 5; ++round) {
      for (const bool in : {true, false}) {
        const Time begin = SteadyNow();
        EventPtr last;
        for (int copy = 0; copy < kCopies; ++copy) {
          const std::span<std::byte> bytes = std::span(host).first(size.count());
          const DeviceRange range = room->Part(Bytes(0), size);
          last = in ? stream.CopyIn(range, bytes, nullptr) : stream.CopyOut(bytes, range, nullptr);
        }
        if (!last->Wait(kPatience).ok()) return;
        double& best = in ? best_in : best_out;
        best = std::max(best,
                        kCopies * static_cast<double>(size.count()) / ToSeconds(SteadyNow() - begin) / 1e9);
      }
    }
    Say("link", absl::StrCat(size.count() >> 10, " KiB"),
        absl::StrFormat("%.2f GB/s in, %.2f GB/s out%s", best_in, best_out,
                        registered ? "" : ", not registered"));
  }
  if (registered) device.UnregisterHost(host);
  device.Free(*room);
}

// y = op(x, w): one step of a library, on these SMs; twice as it is put there, and once recorded.
absl::Status Prober::Computes(Device& device, Stream& stream, const char* op, const SmShare& share) {
  const bool product = std::string_view(op) == "MatMul";
  const std::vector<std::int64_t> shape =
      product ? std::vector<std::int64_t>{4, 4} : std::vector<std::int64_t>{1, 1, 4, 4};
  const auto fill = [&](proto::TensorSpec* spec, const char* name) {
    spec->set_name(name);
    spec->set_type(proto::FP32);
    for (const std::int64_t dim : shape) spec->add_shape(dim);
  };
  proto::Model model;
  model.set_format_version(1);
  model.set_opset(13);
  fill(model.add_inputs(), "x");
  fill(model.add_outputs(), "y");
  auto* const step = model.add_steps();
  step->set_op(op);
  step->set_name(op);
  step->add_inputs("x");
  step->add_inputs("w");
  step->add_outputs("y");
  auto* const weight = model.add_weights();
  weight->set_name("w");
  weight->set_type(proto::FP32);
  for (int i = 0; i < (product ? 2 : 4); ++i) weight->add_shape(product ? 4 : 1);
  weight->set_length(product ? 64 : 4);
  model.set_weights_bytes(64);
  const std::vector<std::byte> weights(64);
  const std::vector<proto::TensorSpec> inputs = {model.inputs(0)};
  TROUPE_ASSIGN_OR_RETURN(const auto plan, device.Prepare(model, weights, inputs, proto::PRECISION_FP32));
  LaunchArguments arguments;
  arguments.share = share;
  std::vector<DeviceRange> taken;
  absl::Status status;
  const auto take = [&](Bytes size) {
    auto range = device.Allocate(size);
    if (!range.ok()) status = range.status();
    if (range.ok()) taken.push_back(*range);
    return range.ok() ? *range : DeviceRange();
  };
  arguments.weights = take(Bytes(64));
  arguments.activations = take(plan->activation_bytes());
  arguments.inputs = {take(plan->input_bytes(0))};
  arguments.outputs = {take(plan->output_bytes(0))};
  if (status.ok()) status = stream.CopyIn(arguments.weights, weights, nullptr)->Wait(kPatience);
  for (int round = 0; round < 3 && status.ok(); ++round)
    status = stream.Launch(plan, arguments, nullptr)->Wait(kPatience);
  for (const DeviceRange& range : taken) device.Free(range);
  return status;
}

void Prober::Shares(Device& device, Stream& stream) {
  const ShareLadder& ladder = device.info().shares;
  for (const char* const op : {"MatMul", "Conv"}) {
    const absl::Status whole = Computes(device, stream, op, SmShare());
    Say("computes", absl::StrCat(op, " on all SMs"), whole.ok() ? "works" : std::string(whole.message()));
  }
  if (!device.info().remark.empty()) {
    Say("shares", "of the SMs", device.info().remark);
    probed_.uses.push_back("Functions with a share of the SMs run one at a time, on all of them.");
    return;
  }
  bool works = true;
  ShareGate gate(ladder, 64);
  for (const std::uint32_t percent : {12U, 50U}) {
    const auto share = gate.Take(percent);
    if (!share) continue;
    for (const char* const op : {"MatMul", "Conv"}) {
      const Time begin = SteadyNow();
      const absl::Status status = Computes(device, stream, op, *share);
      works = works && status.ok();
      Say("shares", absl::StrCat(op, " on ", share->sms, " SMs"),
          status.ok() ? absl::StrCat("works; with what it makes first: ", Milliseconds(SteadyNow() - begin))
                      : std::string(status.message()));
    }
    gate.Give(*share);
  }
  probed_.uses.push_back(
      absl::StrCat("Shares of the SMs come in steps of ", ladder.unit(), " of ", ladder.sms(),
                   works ? "."
                         : ", and a library does not work on them: run such functions without "
                           "sm_partition."));
}

void Prober::Measure(Device& device) {
  const auto stream = device.MakeStream();
  Copies(device, *stream);
  Shares(device, *stream);
}

Probed Prober::Run() {
  const bool described = Describe();
  Libraries();
  CudaOptions options = options_;
  if (options.memory == Bytes(0)) options.memory = kTaken;
  const Time begin = SteadyNow();
  CudaOpened opened = Open(options);
  probed_.trouble = opened.trouble;
  probed_.why = opened.why;
  if (opened.device == nullptr || !described) return std::move(probed_);
  Say("device", "opened in", Milliseconds(SteadyNow() - begin));
  probed_.uses.push_back(absl::StrCat("A worker with ", FormatBytes(options.memory),
                                      " of it says at its start: ", opened.summary, "."));
  CUresult made = CUDA_SUCCESS;
  if (const auto context = Context::Make(driver_, device_, made); context != nullptr) {
    context->Enter();
    std::size_t free = 0;
    std::size_t total = 0;
    if (driver_->cuMemGetInfo(&free, &total) == CUDA_SUCCESS) {
      Say("device", "memory beside the models'",
          FormatBytes(Bytes(total) - Bytes(std::min(total, free + options.memory.count()))));
    }
    Units(*context);
    HostMemory(*context);
    Addresses(*context);
  }
  Measure(*opened.device);
  if (const absl::Status health = opened.device->Health(); !health.ok()) {
    probed_.trouble = CudaTrouble::kLost;
    probed_.why = absl::StrCat(Name(CudaTrouble::kLost), ": ", std::string(health.message()));
  }
  return std::move(probed_);
}

}  // namespace

Probed ProbeDevice(const CudaOptions& options) {
  return Prober(options).Run();
}

}  // namespace troupe::gpu::cuda
