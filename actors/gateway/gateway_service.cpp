#include "actors/gateway/gateway_service.hpp"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.hpp"
#include "base/wire_status.hpp"
#include "proto/function_signature.hpp"
#include "transport/steady_clock.hpp"

namespace troupe::actors {

namespace {

constexpr Duration kFetchLimit = std::chrono::seconds(10);
constexpr Duration kRetryAfter = std::chrono::milliseconds(200);
constexpr Duration kLoadTimeout = std::chrono::minutes(5);

// A place in the gateway's arena (or inside the message, when small). Once a reference was made, the bytes
// belong to the call, which drops the place when it is over.
class ChannelPlace final : public gateway::InputPlace {
 public:
  ChannelPlace(transport::Reservation reservation, transport::TensorChannel& channel)
      : reservation_(std::move(reservation)), channel_(channel) {}
  ~ChannelPlace() override {
    if (committed_) static_cast<void>(channel_.Release(ref_));
  }
  std::span<std::byte> bytes() override { return reservation_.bytes(); }
  proto::TensorRef ToRef() override {
    ref_ = reservation_.Commit();
    committed_ = true;
    return ref_;
  }

 private:
  transport::Reservation reservation_;
  transport::TensorChannel& channel_;
  proto::TensorRef ref_;
  bool committed_ = false;
};

// Tells the node, once, that everything behind one reply has been read.
class Unread {
 public:
  Unread(std::shared_ptr<FrontClient> front, std::uint64_t release)
      : front_(std::move(front)), release_(release) {}
  Unread(const Unread&) = delete;
  Unread& operator=(const Unread&) = delete;
  ~Unread() {
    if (release_ != 0) front_->Release(release_);
  }

 private:
  std::shared_ptr<FrontClient> front_;
  const std::uint64_t release_;
};

// What an output buffer keeps alive: the mapping, and the node's slice.
struct Keeper {
  transport::TensorData data;
  std::shared_ptr<Unread> unread;
};

// Gathers the outputs of one reply; the last one to arrive answers.
struct OutputGathering {
  gateway::InferResult result;
  std::function<void(gateway::InferResult)> done;
  std::mutex mutex;
  std::size_t open = 1;

  void Close(const absl::Status& status) {
    {
      const std::lock_guard lock(mutex);
      result.status.Update(status);
      if (--open > 0) return;
    }
    if (!result.status.ok()) {
      // The worker that held the outputs is gone: the answer is lost, a retry makes a new one.
      result.outputs.clear();
      result.status =
          absl::UnavailableError(absl::StrCat("the outputs were lost: ", result.status.message()));
      result.retry_after = kRetryAfter;
    }
    done(std::move(result));
  }
};

}  // namespace

absl::StatusOr<gateway::InputBuffer> GatewayService::ReserveInput(Bytes size) {
  TROUPE_ASSIGN_OR_RETURN(auto reservation, parts_.channel->Reserve(size));
  return gateway::InputBuffer(std::make_unique<ChannelPlace>(std::move(reservation), *parts_.channel));
}

gateway::CallId GatewayService::Infer(gateway::InferCall call,
                                      std::function<void(gateway::InferResult)> done) {
  const auto id = next_call_++;
  proto::InferRequest request;
  request.mutable_function()->set_name(std::move(call.function));
  request.mutable_function()->set_version(std::move(call.version));
  request.set_timeout_ns(call.timeout.count());
  request.set_priority(call.priority);
  if (!call.sequence.id.empty()) {
    request.mutable_sequence()->set_id(std::move(call.sequence.id));
    request.mutable_sequence()->set_start(call.sequence.start);
    request.mutable_sequence()->set_end(call.sequence.end);
  }
  request.set_run_key(std::move(call.run_key));
  request.set_client_id(std::move(call.request_id));
  request.set_call(id);
  for (auto& name : call.outputs) request.add_outputs(std::move(name));
  auto places = std::make_shared<std::vector<std::unique_ptr<gateway::InputPlace>>>();
  for (auto& input : call.inputs) {
    auto& tensor = *request.add_inputs();
    *tensor.mutable_spec() = std::move(input.spec);
    if (auto place = input.data.TakePlace()) {
      *tensor.mutable_data() = place->ToRef();
      places->push_back(std::move(place));
    } else {
      tensor.mutable_data()->mutable_inlined();
    }
  }
  parts_.front->Infer(std::move(request), [this, places, done = std::move(done)](proto::InferReply reply) {
    places->clear();
    auto gathering = std::make_shared<OutputGathering>();
    gathering->done = done;
    auto& result = gathering->result;
    result.version = reply.function().version();
    if (reply.code() != 0) {
      result.status = StatusIn(reply);
      result.retry_after = Duration(reply.retry_after_ns());
      return done(std::move(result));
    }
    const auto unread = std::make_shared<Unread>(parts_.front, reply.release());
    gathering->open += static_cast<std::size_t>(reply.outputs_size());
    result.outputs.resize(static_cast<std::size_t>(reply.outputs_size()));
    for (int i = 0; i < reply.outputs_size(); ++i) {
      auto& output = *reply.mutable_outputs(i);
      auto& slot = result.outputs[static_cast<std::size_t>(i)];
      slot.spec = std::move(*output.mutable_spec());
      if (output.data().has_inlined()) {
        slot.data = gateway::OutputBuffer::Inline(std::move(*output.mutable_data()->mutable_inlined()));
        gathering->Close(absl::OkStatus());
        continue;
      }
      parts_.channel->FetchAsync(output.data(), kFetchLimit,
                                 [gathering, unread, &slot](absl::StatusOr<transport::TensorData> data) {
                                   if (data.ok()) {
                                     auto keeper = std::make_shared<Keeper>(Keeper{std::move(*data), unread});
                                     const auto bytes = keeper->data.bytes();
                                     slot.data = gateway::OutputBuffer(bytes, std::move(keeper));
                                   }
                                   gathering->Close(data.status());
                                 });
    }
    gathering->Close(absl::OkStatus());
  });
  return gateway::CallId{id};
}

void GatewayService::Cancel(gateway::CallId call) {
  parts_.front->Cancel(static_cast<std::uint64_t>(call));
}

std::string GatewayService::WhyNotReady(const proto::FunctionRecord& function) const {
  if (!function.loaded()) return "unloaded";
  if (parts_.view->nodes() == 0) return "no node takes requests now";
  if (!parts_.servable->Has(function.model_digest()))
    return function.problem().empty() ? "no node has its model in memory yet" : function.problem();
  return "";
}

// Until the gateway has settled, each function is looked at; from then on only whether there is a node.
bool GatewayService::Ready() {
  if (parts_.view->nodes() == 0) return false;
  if (parts_.servable->settled()) return true;
  const auto view = parts_.view->Get();
  bool all = true;
  view->functions().ForEach([&](const proto::FunctionRecord& record) {
    all = all && (!record.loaded() || parts_.servable->Has(record.model_digest()));
  });
  return parts_.servable->Settle(all, transport::SteadyNow());
}

std::shared_ptr<const gateway::FunctionInfo> GatewayService::Describe(const cluster::ClusterView& view,
                                                                      const std::string& name,
                                                                      const std::string& version) const {
  auto info = std::make_shared<gateway::FunctionInfo>();
  info->name = name;
  if (const auto* record = view.functions().Find([&] {
        proto::FunctionKey key;
        key.set_name(name);
        key.set_version(version);
        return key;
      }())) {
    info->version = record->key().version();
    for (const auto& [number, other] : *view.functions().VersionsOf(name))
      info->versions.push_back(other.key().version());
    info->tenant = record->tenant();
    const auto inputs = proto::CallerInputs(*record);
    const auto outputs = proto::CallerOutputs(*record);
    info->inputs = {inputs.begin(), inputs.end()};
    info->outputs = {outputs.begin(), outputs.end()};
    info->reason = WhyNotReady(*record);
    info->ready = info->reason.empty();
    info->deadline = Duration(record->slo().deadline_ns());
    info->percentile = record->slo().percentile();
    return info;
  }
  const auto* workflow = view.FindWorkflow(name, version);
  if (workflow == nullptr) return nullptr;
  info->platform = gateway::kWorkflowPlatform;
  info->version = workflow->spec().version();
  for (const auto& [number, other] : view.workflows().at(name))
    info->versions.push_back(other.spec().version());
  for (const auto& input : workflow->spec().inputs()) info->inputs.push_back(input.spec());
  info->outputs = {workflow->outputs().begin(), workflow->outputs().end()};
  for (const auto& step : workflow->spec().steps()) {
    if (!step.workflow().empty()) {
      if (view.FindWorkflow(step.workflow(), step.version()) == nullptr)
        info->reason = absl::StrCat("step '", step.name(), "': there is no workflow '", step.workflow(), "'");
      continue;
    }
    proto::FunctionKey key;
    key.set_name(step.function());
    key.set_version(step.version());
    const auto found = view.functions().FindServed(key);
    const auto why = found.ok() ? WhyNotReady(**found) : std::string(found.status().message());
    if (!why.empty()) info->reason = absl::StrCat("step '", step.name(), "': ", why);
  }
  if (parts_.view->nodes() == 0) info->reason = "no node takes requests now";
  info->ready = info->reason.empty();
  return info;
}

absl::StatusOr<std::shared_ptr<const gateway::FunctionInfo>> GatewayService::Find(std::string_view name,
                                                                                  std::string_view version) {
  const auto view = parts_.view->Get();
  auto info = Describe(*view, std::string(name), std::string(version));
  if (info != nullptr) return info;
  // A gateway that has joined has a view. Before, it cannot say that something does not exist.
  if (view->members().empty())
    return absl::UnavailableError(
        "this gateway has not heard from the cluster manager yet which functions there are; try again");
  return absl::NotFoundError(absl::StrCat("there is no function or workflow '", std::string(name), "'",
                                          version.empty() ? "" : " of version " + std::string(version)));
}

std::vector<std::shared_ptr<const gateway::FunctionInfo>> GatewayService::List() {
  const auto view = parts_.view->Get();
  std::vector<std::shared_ptr<const gateway::FunctionInfo>> all;
  view->functions().ForEach([&](const proto::FunctionRecord& record) {
    all.push_back(Describe(*view, record.key().name(), record.key().version()));
  });
  for (const auto& [name, versions] : view->workflows())
    for (const auto& [number, record] : versions)
      all.push_back(Describe(*view, name, record.spec().version()));
  // Stable: the versions of one name stay in their order.
  std::stable_sort(all.begin(), all.end(), [](const auto& a, const auto& b) { return a->name < b->name; });
  return all;
}

absl::StatusOr<gateway::FunctionStatistics> GatewayService::Statistics(std::string_view name,
                                                                       std::string_view version) {
  TROUPE_ASSIGN_OR_RETURN(const auto info, Find(name, version));
  return parts_.statistics->Find(info->name, info->version);
}

void GatewayService::Load(const proto::Caller& caller, std::string_view name,
                          std::map<std::string, std::string>, std::function<void(absl::Status)> done) {
  SetLoaded(caller, name, true, std::move(done));
}

void GatewayService::Unload(const proto::Caller& caller, std::string_view name,
                            std::function<void(absl::Status)> done) {
  SetLoaded(caller, name, false, std::move(done));
}

void GatewayService::SetLoaded(const proto::Caller& caller, std::string_view name, bool loaded,
                               std::function<void(absl::Status)> done) {
  proto::AdminRequest request;
  *request.mutable_caller() = caller;
  request.mutable_load()->mutable_key()->set_name(std::string(name));
  request.mutable_load()->set_load(loaded);
  parts_.manager->Ask(
      std::move(request), kLoadTimeout,
      [done = std::move(done)](const absl::StatusOr<proto::AdminReply>& reply) { done(reply.status()); });
}

}  // namespace troupe::actors
