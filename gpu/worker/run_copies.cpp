#include "gpu/worker/run_copies.hpp"

#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status.hpp"
#include "gpu/worker/run_inputs.hpp"
#include "gpu/worker/run_kept.hpp"
#include "transport/arena.hpp"
#include "transport/steady_clock.hpp"

namespace troupe::gpu {

using transport::SteadyNow;

namespace {

// Of all requests of the run, request by request.
template <class Visit>
void ForEachInput(const proto::RunOrder& order, Visit visit) {
  for (const proto::Tensor& tensor : order.inputs()) visit(tensor);
  for (const proto::BatchMember& member : order.members())
    for (const proto::Tensor& tensor : member.inputs()) visit(tensor);
}

}  // namespace

RunCopies::RunCopies(WorkerDevice& device, TaskQueue& queue, Lanes lanes, const WorkerLimits& limits,
                     Calls calls)
    : device_(device),
      queue_(queue),
      lanes_(lanes),
      limits_(limits),
      calls_(std::move(calls)),
      in_(device.device->MakeStream()),
      out_(device.device->MakeStream()) {}

void RunCopies::Close() {
  in_.reset();
  out_.reset();
  device_.links.Close();
}

void RunCopies::Fetch(RunId id, const Run& run) {
  bool blocks = false;
  ForEachInput(run.request.order, [&](const proto::Tensor& tensor) {
    const proto::ArenaRef& arena = tensor.data().arena();
    blocks |= tensor.data().has_arena() && !known_arenas_.contains({arena.socket(), arena.arena()});
  });
  // The order is read here only, and outlives the fetch: a run that is given up meanwhile leaves it to the
  // task.
  auto fetch = [channel = run.request.channel, order = blocks ? run.request.order : proto::RunOrder()](
                   const proto::RunOrder* given) -> absl::StatusOr<std::vector<transport::TensorData>> {
    std::vector<transport::TensorData> inputs;
    absl::Status failed;
    ForEachInput(given != nullptr ? *given : order, [&](const proto::Tensor& tensor) {
      if (!tensor.data().has_arena() || !failed.ok()) {
        inputs.emplace_back();  // inline: read from the order itself
        return;
      }
      absl::StatusOr<transport::TensorData> data = channel->FetchHere(tensor.data());
      if (data.ok()) {
        inputs.push_back(*std::move(data));
        return;
      }
      // NOT_FOUND would say that the model is not here.
      const bool gone = absl::IsNotFound(data.status()) || absl::IsUnavailable(data.status());
      failed = absl::Status(gone ? absl::StatusCode::kDataLoss : data.status().code(),
                            absl::StrCat("input ", tensor.spec().name(), ": ", data.status().message()));
    });
    if (!failed.ok()) return failed;
    return inputs;
  };
  if (!blocks) {
    calls_.fetched(id, fetch(&run.request.order));
    return;
  }
  fetcher_.Post([this, id, fetch = std::move(fetch)] {
    queue_.Post([this, id, inputs = fetch(nullptr)] { calls_.fetched(id, inputs); });
  });
}

void RunCopies::Remember(const proto::RunOrder& order) {
  if (known_arenas_.size() > limits_.known_arenas) known_arenas_.clear();  // the fetcher meets them again
  ForEachInput(order, [this](const proto::Tensor& input) {
    const proto::TensorRef& ref = input.data();
    if (ref.has_arena()) known_arenas_.emplace(ref.arena().socket(), ref.arena().arena());
  });
}

RunCopies::InputBytes RunCopies::BytesOf(const Run& run, std::size_t request, int tensor,
                                         const DeviceRange& to) {
  const proto::RunOrder& order = run.request.order;
  const proto::TensorRef& ref = RunBatch::InputsOf(order, request)[tensor].data();
  if (!ref.has_arena()) return {to, std::as_bytes(std::span(ref.inlined()))};
  const transport::TensorData& data =
      run.inputs[request * static_cast<std::size_t>(order.inputs_size()) + static_cast<std::size_t>(tensor)];
  return {to, data.bytes(), ArenaOf(run, data)};
}

void RunCopies::CopyIn(RunId id, Run& run) {
  run.copy_in_begin = SteadyNow();
  const proto::RunOrder& order = run.request.order;
  std::vector<InputBytes> bytes;
  std::vector<std::pair<DeviceRange, DeviceRange>> within;  // to, from
  for (std::size_t i = 0; i < run.plan->inputs().size(); ++i) {
    const std::string& name = run.plan->inputs()[i].name();
    if (IsStateInput(run, name) || FindReadInPlace(run, name) != nullptr) continue;
    const InputParts parts = PartsOf(order, name);
    if (run.batch.joined()) {
      for (std::size_t request = 0; request < run.batch.size(); ++request) {
        const auto [offset, size] = run.batch.PartOf(request, run.arguments.inputs[i].size);
        bytes.push_back(BytesOf(run, request, parts.first, run.arguments.inputs[i].Part(offset, size)));
      }
      continue;
    }
    Bytes offset;
    for (int tensor = parts.first; tensor < parts.last; ++tensor) {
      const Bytes size = transport::SizeOf(order.inputs(tensor).data());
      const DeviceRange to = run.arguments.inputs[i].Part(offset, size);
      offset += size;
      const Run::KeptInput* const kept = FindKeptInput(run, tensor);
      if (kept == nullptr) {
        bytes.push_back(BytesOf(run, 0, tensor, to));
      } else if (kept->input.on_device) {
        within.emplace_back(to, *kept->input.on_device);
      } else {
        bytes.push_back({to, kept->input.in_arena});
      }
    }
  }
  if (within.empty()) return CopyBytesIn(id, run, bytes);
  // The run waits for nothing else meanwhile, and is there until it is staged.
  auto failed = std::make_shared<absl::Status>();
  for (std::size_t i = 0; i < within.size(); ++i) {
    const bool last = i + 1 == within.size();
    in_->CopyWithin(within[i].first, within[i].second,
                    [this, id, &run, bytes, failed, last](const Completion& completion) {
                      if (failed->ok()) *failed = completion.status;
                      if (!last) return;
                      queue_.Post([this, id, &run, bytes, failed] {
                        failed->ok() ? CopyBytesIn(id, run, bytes) : calls_.staged(id, *failed);
                      });
                    });
  }
}

void RunCopies::CopyBytesIn(RunId id, Run& run, const std::vector<InputBytes>& bytes) {
  std::uint64_t total = 0;
  for (const InputBytes& input : bytes) total += input.from.size();
  run.bytes += total;
  bytes_in_ += Bytes(total);
  // A tensor that is no larger than a block is not cut into blocks, and its run waits for nothing else: it
  // does not queue behind the batch that the device has.
  if (Bytes(total) > device_.links.options().block) return SendInputs(id, run, bytes);
  lanes_.At(Lane::kCopyIn, run.request.sequence);
  const auto copies = std::make_shared<Copies>();
  for (const InputBytes& input : bytes) copies->pinned.push_back(Use(input.from, input.arena));
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    const bool last = i + 1 == bytes.size();
    in_->CopyIn(bytes[i].to, bytes[i].from, [this, id, copies, last](const Completion& completion) {
      if (copies->status.ok()) copies->status = completion.status;
      if (last) queue_.Post([this, id, copies] { calls_.staged(id, copies->status); });
    });
  }
  if (bytes.empty()) queue_.Post([this, id] { calls_.staged(id, absl::OkStatus()); });
}

// What keeps an arena mapped, and no slice of it alive: a slice of another process's is that one's.
RunCopies::Lying RunCopies::ArenaOf(const Run& run, const transport::TensorData& input) {
  const std::shared_ptr<transport::Arena>& own = run.request.channel->arena();
  if (input.ref().arena().arena() == own->id()) return {own, ArenaPins::Owner::kWorker};
  return {std::make_shared<const transport::TensorData>(input), ArenaPins::Owner::kOthers};
}

ArenaPins::Lease RunCopies::Use(std::span<const std::byte> bytes, const Lying& arena) {
  if (device_.arena_pins == nullptr || arena.memory == nullptr) return nullptr;
  return device_.arena_pins->Use(bytes, arena.owner, arena.memory);
}

// What is large enough to be registered is not in a message.
ArenaPins::Lease RunCopies::UseOwn(const Run& run, const OutputBytes& output) {
  return Use(output.to, {run.request.channel->arena(), ArenaPins::Owner::kWorker});
}

void RunCopies::SendInputs(RunId id, Run& run, const std::vector<InputBytes>& bytes) {
  std::vector<ArenaPins::Lease> pinned;
  TransferRequest transfer;
  transfer.order = run.request.sequence;
  transfer.deadline = run.request.deadline;
  // Copies in only read their source.
  for (const InputBytes& input : bytes) {
    pinned.push_back(Use(input.from, input.arena));
    transfer.pieces.push_back({input.to, const_cast<std::byte*>(input.from.data())});
  }
  transfer.done = [this, id, pinned = std::move(pinned)](const Completion& completion) {
    queue_.Post([this, id, status = completion.status] { calls_.staged(id, status); });
  };
  device_.links.inputs().Put(std::move(transfer));
}

absl::Status RunCopies::CopyOut(RunId id, Run& run) {
  const std::uint64_t before = run.bytes;
  TROUPE_RETURN_IF_ERROR(MeasureOutputs(run));
  bytes_out_ += Bytes(run.bytes - before);
  run.copy_out_begin = SteadyNow();
  const std::vector<OutputBytes> leaving = OutputsOf(run);
  if (Bytes(run.bytes - before) > device_.links.options().block) {
    SendOutputs(id, run, leaving);
    return absl::OkStatus();
  }
  lanes_.At(Lane::kCopyOut, run.request.sequence);
  const auto copies = std::make_shared<Copies>();
  for (const OutputBytes& output : leaving) copies->pinned.push_back(UseOwn(run, output));
  for (std::size_t i = 0; i < leaving.size(); ++i) {
    const bool last = i + 1 == leaving.size();
    out_->CopyOut(leaving[i].to, leaving[i].from, [this, id, copies, last](const Completion& completion) {
      if (copies->status.ok()) copies->status = completion.status;
      if (last) queue_.Post([this, id, copies] { calls_.left(id, copies->status); });
    });
  }
  if (leaving.empty()) queue_.Post([this, id] { calls_.left(id, absl::OkStatus()); });
  return absl::OkStatus();
}

std::vector<RunCopies::OutputBytes> RunCopies::OutputsOf(const Run& run) {
  std::vector<OutputBytes> leaving;
  for (std::size_t at = 0; at < run.rooms.size(); ++at) {
    const std::size_t i = at % run.outputs.size();
    if (StaysOnDevice(run, i)) continue;
    const auto [offset, size] = run.batch.PartOf(at / run.outputs.size(), run.output_sizes[i]);
    leaving.push_back(
        {run.rooms[at].bytes().first(size.count()), run.arguments.outputs[i].Part(offset, size)});
  }
  return leaving;
}

void RunCopies::SendOutputs(RunId id, Run& run, const std::vector<OutputBytes>& leaving) {
  TransferRequest transfer;
  transfer.order = run.request.sequence;
  transfer.deadline = run.request.deadline;
  std::vector<ArenaPins::Lease> pinned;
  for (const OutputBytes& output : leaving) {
    pinned.push_back(UseOwn(run, output));
    transfer.pieces.push_back({output.from, output.to.data()});
  }
  transfer.done = [this, id, pinned = std::move(pinned)](const Completion& completion) {
    queue_.Post([this, id, status = completion.status] { calls_.left(id, status); });
  };
  device_.links.out().Put(std::move(transfer));
}

void RunCopies::SendLayers(RunId id, Run& run, std::shared_ptr<const WeightWindow> window) {
  LayerLoad::Calls calls;
  calls.begun = [this] { queue_.Post([this] { calls_.begun(); }); };
  calls.landed = [this, id](const absl::Status& status) {
    queue_.Post([this, id, status] { calls_.landed(id, status); });
  };
  run.layers = std::make_shared<LayerLoad>(std::move(window), *run.request.host, *run.window,
                                           run.request.sequence, run.request.deadline, calls);
  run.layers->SignalWith(device_.device->MakeSignals(run.layers->window().parts.size()));
  run.load = run.layers->load();
  run.arguments.pieces = run.layers->Pieces();
  const Bytes bytes = run.layers->window().bytes;
  run.bytes += bytes.count();
  bytes_in_ += bytes;
  SendLayersOf(run, 0);
}

}  // namespace troupe::gpu
