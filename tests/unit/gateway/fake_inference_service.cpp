#include "tests/unit/gateway/fake_inference_service.hpp"

#include <algorithm>

#include "gateway/text.hpp"

namespace troupe::gateway {

namespace {

class Place final : public InputPlace {
 public:
  Place(std::size_t size, std::shared_ptr<int> open) : bytes_(size, '\0'), open_(std::move(open)) {}
  std::span<std::byte> bytes() override { return std::as_writable_bytes(std::span(bytes_)); }
  proto::TensorRef ToRef() override {
    proto::TensorRef ref;
    ref.set_inlined(bytes_);
    return ref;
  }

 private:
  std::string bytes_;
  std::shared_ptr<int> open_;
};

struct Kept {
  std::string bytes;
  std::shared_ptr<int> open;
};

absl::Status Unknown(std::string_view name) {
  return absl::NotFoundError(Cat("no function is called '", name, "'"));
}

}  // namespace

proto::TensorSpec Spec(const std::string& name, proto::DataType type, std::vector<std::int64_t> shape) {
  proto::TensorSpec spec;
  spec.set_name(name);
  spec.set_type(type);
  for (const std::int64_t dimension : shape) spec.add_shape(dimension);
  return spec;
}

FakeInferenceService::~FakeInferenceService() {
  ReleaseAll();
  for (std::thread& thread : threads_) thread.join();
}

void FakeInferenceService::AddEcho(const std::string& name, std::vector<proto::TensorSpec> inputs,
                                   std::vector<std::string> outputs) {
  auto info = std::make_shared<FunctionInfo>();
  info->name = name;
  info->version = "1";
  info->versions = {"1"};
  info->inputs = std::move(inputs);
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    info->outputs.push_back(info->inputs[i]);
    info->outputs.back().set_name(outputs[i]);
  }
  info->ready = true;
  info->deadline = std::chrono::milliseconds(50);
  info->percentile = 98;
  const std::lock_guard lock(mutex_);
  functions_[name] = std::move(info);
}

void FakeInferenceService::SetReady(const std::string& name, bool ready) {
  const std::lock_guard lock(mutex_);
  auto info = std::make_shared<FunctionInfo>(*functions_.at(name));
  info->ready = ready;
  info->reason = ready ? "" : "unloaded";
  functions_[name] = std::move(info);
}

void FakeInferenceService::Remove(const std::string& name) {
  const std::lock_guard lock(mutex_);
  functions_.erase(name);
}

void FakeInferenceService::Hold(bool hold) {
  const std::lock_guard lock(mutex_);
  hold_ = hold;
}

void FakeInferenceService::ReleaseAll() {
  std::map<std::uint64_t, Held> held;
  {
    const std::lock_guard lock(mutex_);
    held.swap(held_);
  }
  for (auto& [id, one] : held) one.done(Echo(std::move(one.call)));
}

void FakeInferenceService::AnswerWith(absl::Status status, Duration retry_after) {
  const std::lock_guard lock(mutex_);
  answer_ = std::move(status);
  retry_after_ = retry_after;
}

void FakeInferenceService::RefusePlaces(bool refuse) {
  const std::lock_guard lock(mutex_);
  refuse_places_ = refuse;
}

void FakeInferenceService::AnswerElsewhere(bool elsewhere) {
  const std::lock_guard lock(mutex_);
  elsewhere_ = elsewhere;
}

void FakeInferenceService::SetLife(bool live, bool ready) {
  const std::lock_guard lock(mutex_);
  live_ = live;
  ready_ = ready;
}

void FakeInferenceService::WaitForHeld(std::size_t count) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return held_.size() >= count; });
}

void FakeInferenceService::WaitForCancelled(std::size_t count) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return cancelled_ >= count; });
}

Duration FakeInferenceService::last_timeout() {
  const std::lock_guard lock(mutex_);
  return last_timeout_;
}
std::uint32_t FakeInferenceService::last_priority() {
  const std::lock_guard lock(mutex_);
  return last_priority_;
}
std::string FakeInferenceService::last_version() {
  const std::lock_guard lock(mutex_);
  return last_version_;
}
Sequence FakeInferenceService::last_sequence() {
  const std::lock_guard lock(mutex_);
  return last_sequence_;
}
std::size_t FakeInferenceService::calls() {
  const std::lock_guard lock(mutex_);
  return calls_;
}
std::size_t FakeInferenceService::open_places() {
  return static_cast<std::size_t>(places_.use_count() - 1);
}
void FakeInferenceService::WaitForPlaces() {
  while (open_places() > 0) std::this_thread::yield();
}
std::size_t FakeInferenceService::open_outputs() {
  return static_cast<std::size_t>(outputs_.use_count() - 1);
}
std::map<std::string, std::string> FakeInferenceService::load_parameters() {
  const std::lock_guard lock(mutex_);
  return load_parameters_;
}

absl::StatusOr<InputBuffer> FakeInferenceService::ReserveInput(Bytes size) {
  const std::lock_guard lock(mutex_);
  if (refuse_places_ || size > MiB(512)) return absl::ResourceExhaustedError("no room for inputs now");
  return InputBuffer(std::make_unique<Place>(size.count(), places_));
}

InferResult FakeInferenceService::Echo(InferCall call) {
  InferResult result;
  const std::lock_guard lock(mutex_);
  result.status = answer_;
  result.retry_after = retry_after_;
  const auto found = functions_.find(call.function);
  if (found == functions_.end()) result.status = Unknown(call.function);
  if (!result.status.ok()) return result;
  const FunctionInfo& info = *found->second;
  result.version = info.version;
  std::vector<std::string> wanted = call.outputs;
  if (wanted.empty()) {
    for (const auto& output : info.outputs) wanted.push_back(output.name());
  }
  for (const std::string& name : wanted) {
    const auto at = std::find_if(info.outputs.begin(), info.outputs.end(),
                                 [&](const auto& o) { return o.name() == name; });
    const std::string& input = info.inputs[static_cast<std::size_t>(at - info.outputs.begin())].name();
    for (InferInput& given : call.inputs) {
      if (given.spec.name() != input) continue;
      const auto bytes = given.data.bytes();
      auto kept = std::make_shared<const Kept>(
          Kept{std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size()), outputs_});
      InferOutput output{given.spec, OutputBuffer(std::as_bytes(std::span(kept->bytes)), kept)};
      output.spec.set_name(name);
      result.outputs.push_back(std::move(output));
    }
  }
  return result;
}

CallId FakeInferenceService::Infer(InferCall call, std::function<void(InferResult)> done) {
  std::unique_lock lock(mutex_);
  ++calls_;
  last_timeout_ = call.timeout;
  last_priority_ = call.priority;
  last_version_ = call.version;
  last_sequence_ = call.sequence;
  const std::uint64_t id = next_call_++;
  if (hold_) {
    held_.emplace(id, Held{std::move(call), std::move(done)});
    changed_.notify_all();
    return CallId{id};
  }
  const bool elsewhere = elsewhere_;
  if (elsewhere) {
    auto shared = std::make_shared<InferCall>(std::move(call));
    threads_.emplace_back([this, shared, done = std::move(done)] { done(Echo(std::move(*shared))); });
    return CallId{id};
  }
  lock.unlock();
  done(Echo(std::move(call)));
  return CallId{id};
}

void FakeInferenceService::Cancel(CallId call) {
  std::function<void(InferResult)> done;
  {
    const std::lock_guard lock(mutex_);
    ++cancelled_;
    const auto found = held_.find(static_cast<std::uint64_t>(call));
    if (found != held_.end()) {
      done = std::move(found->second.done);
      held_.erase(found);
    }
    changed_.notify_all();
  }
  if (!done) return;
  InferResult result;
  result.status = absl::CancelledError("the client went away");
  done(std::move(result));
}

absl::StatusOr<std::shared_ptr<const FunctionInfo>> FakeInferenceService::Find(std::string_view name,
                                                                               std::string_view version) {
  const std::lock_guard lock(mutex_);
  const auto found = functions_.find(name);
  if (found == functions_.end()) return Unknown(name);
  if (!version.empty() && version != found->second->version) {
    return absl::NotFoundError(Cat("function '", name, "' has no version '", version, "'; it has 1"));
  }
  return found->second;
}

std::vector<std::shared_ptr<const FunctionInfo>> FakeInferenceService::List() {
  const std::lock_guard lock(mutex_);
  std::vector<std::shared_ptr<const FunctionInfo>> all;
  for (const auto& [name, info] : functions_) all.push_back(info);
  return all;
}

absl::StatusOr<FunctionStatistics> FakeInferenceService::Statistics(std::string_view name, std::string_view) {
  const std::lock_guard lock(mutex_);
  if (!functions_.contains(name)) return Unknown(name);
  FunctionStatistics statistics;
  statistics.inference_count = 7;
  statistics.success = {7, std::chrono::microseconds(70)};
  statistics.batches[4] = {.compute_input = {1, std::chrono::microseconds(3)},
                           .compute_infer = {1, std::chrono::microseconds(40)},
                           .compute_output = {1, std::chrono::microseconds(5)}};
  return statistics;
}

bool FakeInferenceService::Live() {
  const std::lock_guard lock(mutex_);
  return live_;
}
bool FakeInferenceService::Ready() {
  const std::lock_guard lock(mutex_);
  return ready_;
}

void FakeInferenceService::SetLoaded(std::string_view name, bool loaded,
                                     std::function<void(absl::Status)> done) {
  bool known = false;
  {
    const std::lock_guard lock(mutex_);
    known = functions_.contains(name);
  }
  if (known) SetReady(std::string(name), loaded);
  done(known ? absl::OkStatus() : Unknown(name));
}

void FakeInferenceService::Load(const proto::Caller&, std::string_view name,
                                std::map<std::string, std::string> parameters,
                                std::function<void(absl::Status)> done) {
  {
    const std::lock_guard lock(mutex_);
    load_parameters_ = std::move(parameters);
  }
  SetLoaded(name, true, std::move(done));
}

void FakeInferenceService::Unload(const proto::Caller&, std::string_view name,
                                  std::function<void(absl::Status)> done) {
  SetLoaded(name, false, std::move(done));
}

}  // namespace troupe::gateway
