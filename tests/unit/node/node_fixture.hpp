// A node that a test gives events, and whose effects it reads as text.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "node/node.hpp"

namespace troupe::node {

class NodeTest : public testing::Test {
 protected:
  using Lines = std::vector<std::string>;

  // A node with GPUs of 1 GiB, in which nothing happens by itself.
  static NodeSettings Settings(std::uint32_t gpus) {
    NodeSettings settings;
    settings.name = "node";
    settings.policies.prefetch = "asked";
    for (std::uint32_t i = 0; i < gpus; ++i) settings.gpus.push_back({absl::StrCat("virtual:", i), GiB(1)});
    return settings;
  }
  explicit NodeTest(NodeSettings settings = Settings(2))
      : settings_(std::move(settings)), node_(settings_, *FindSchedulerPolicies(settings_.policies)) {
    On(Started());
  }

  // What the node does about an event, as it is.
  Effects Raw(Event event) { return node_.On(std::move(event), now); }
  // The effects of the last event as text, in order; grants and the log are left out.
  Lines On(Event event) {
    Lines lines;
    for (const auto& effect : node_.On(std::move(event), now)) {
      const auto line = Show(effect);
      if (!line.empty()) lines.push_back(line);
    }
    return lines;
  }
  std::string Show(const Effect& effect) {
    return std::visit([this](const auto& wanted) { return this->Line(wanted); }, effect);
  }

  // --- workers ---
  Lines Report(GpuIndex gpu, proto::ExecutorReport::State state,
               const std::map<std::string, Bytes>& has = {}) {
    return On(Reported(gpu, state, has));
  }
  WorkerReported LostWorker(GpuIndex gpu) { return Reported(gpu, proto::ExecutorReport::DOWN); }
  WorkerReported Reported(GpuIndex gpu, proto::ExecutorReport::State state,
                          const std::map<std::string, Bytes>& has = {}) {
    proto::ExecutorReport report;
    report.set_gpu(gpu);
    report.set_state(state);
    report.set_reason("the test says so");
    if (state == proto::ExecutorReport::STARTING) ++lives_[gpu];
    report.set_incarnation(lives_[gpu]);
    if (state == proto::ExecutorReport::READY) {
      report.mutable_worker()->set_memory_bytes(GiB(1).count());
      report.mutable_worker()->set_free_bytes(GiB(1).count());
      for (const auto& [digest, bytes] : has) {
        auto& resident = *report.mutable_worker()->add_resident();
        resident.set_digest(digest);
        resident.set_bytes(bytes.count());
      }
      report.mutable_worker()->set_input_parts(input_parts_);
      report.mutable_worker()->set_peer_copies(peer_copies_);
      if (takes_over_) report.mutable_worker()->mutable_kept()->set_models(has.size());
    }
    return {report};
  }
  Lines Up(GpuIndex gpu, const std::map<std::string, Bytes>& has = {}) {
    Report(gpu, proto::ExecutorReport::STARTING);
    return Report(gpu, proto::ExecutorReport::READY, has);
  }
  // The GPU answers its latest order of that kind.
  Lines Answered(GpuIndex gpu, const std::string& kind, proto::WorkerOutcome outcome = {}) {
    const auto order = orders_.find({gpu, kind});
    if (order == orders_.end()) return {absl::StrCat("there is no ", kind, " order to GPU ", gpu)};
    outcome.set_sequence(order->second.sequence());
    return On(OrderAnswered{std::move(outcome)});
  }
  [[nodiscard]] static proto::WorkerOutcome Failed(absl::StatusCode code) {
    proto::WorkerOutcome outcome;
    outcome.set_code(static_cast<int>(code));
    return outcome;
  }
  [[nodiscard]] const proto::WorkerOrder& OrderOf(GpuIndex gpu, const std::string& kind) {
    return orders_[{gpu, kind}];
  }

  // --- models ---
  static std::string Packed(const std::string& function) { return absl::StrCat("packed-", function); }
  // The function "f" with one state of this size.
  static proto::FunctionRecord KeeperOf(Bytes size) {
    auto function = Function("f");
    function.add_state()->set_input("in");
    function.mutable_state(0)->set_output("out");
    auto& input = *function.add_inputs();
    input.set_name("in");
    input.set_type(proto::UINT8);
    input.add_shape(static_cast<std::int64_t>(size.count()));
    function.set_deployed_unix_ns(5);
    return function;
  }
  static proto::FunctionRecord Function(const std::string& name) {
    proto::FunctionRecord function;
    function.mutable_key()->set_name(name);
    function.mutable_key()->set_version("1");
    function.set_model_digest(absl::StrCat("model-", name));
    function.set_weights_bytes(MiB(100).count());
    function.set_loaded(true);
    return function;
  }
  // The model's host copy is placed; returns what the node does then.
  Lines Adopt(const std::string& name, Ask ask = 1000) { return Adopt(Function(name), ask); }
  Lines Adopt(const proto::FunctionRecord& function, Ask ask = 1000) {
    EXPECT_THAT(On(AdoptionAsked{ask, function}), testing::ElementsAre("fetch " + function.model_digest()));
    return Place(function);
  }
  Lines Place(const proto::FunctionRecord& function) {
    EXPECT_THAT(On(CopyFetched{function.model_digest(), absl::OkStatus()}),
                testing::ElementsAre("place " + function.model_digest()));
    proto::HostCopy copy;
    copy.set_digest(Packed(function.key().name()));
    copy.mutable_weights()->set_length(MiB(100).count());
    return On(CopyPlaced{.copy = function.model_digest(), .host = copy});
  }

  // --- requests ---
  void Hello(std::uint64_t router) {
    proto::RouterHello hello;
    hello.set_router(router);
    EXPECT_THAT(On(RouterSaidHello{1, hello}), testing::ElementsAre("hello 1"));
  }
  Lines Submit(Ask ask, const std::string& function, std::uint64_t router = 7) {
    return On(Arrived(ask, function, router));
  }
  static RequestArrived Arrived(Ask ask, const std::string& function, std::uint64_t router = 7) {
    RequestArrived arrived;
    arrived.ask = ask;
    arrived.message.mutable_id()->set_router(router);
    arrived.message.mutable_id()->set_sequence(ask);
    *arrived.message.mutable_function() = Function(function).key();
    arrived.message.set_model_digest(Function(function).model_digest());
    return arrived;
  }

  [[nodiscard]] std::size_t Numbered() const { return node_.names(); }
  [[nodiscard]] proto::NodeDescription Described() const { return node_.Describe(now); }
  // The worker of a GPU says for how long it has computed since its start.
  void Computed(GpuIndex gpu, Duration busy) {
    auto described = Described();
    proto::WorkerDescription worker;
    worker.set_busy_ns(busy.count());
    node_.AddWorker(gpu, std::move(worker), described, now);
  }

  // What the node saved last of what it had adopted.
  [[nodiscard]] const proto::ClusterUpdate& saved() const { return saved_; }

  Time now{};
  proto::TrialEnded ended_{};            // the newest answer to a trial
  proto::MemberReport report_{};         // the newest report for a heartbeat
  proto::SubmitReply answered_{};        // the newest answer to a request
  proto::TakenOverStates taken_over_{};  // the newest answer to the wish to take over states
  std::vector<std::string> told_{};      // the events that were logged, by kind
  bool takes_over_ = false;              // what workers have when they come up is what those before them left
  bool input_parts_ = true;              // workers that come up take inputs in parts
  bool peer_copies_ = false;             // workers can copy from other GPUs

 private:
  std::string Line(const Answer<proto::SubmitReply>& answer) {
    answered_ = answer.reply;
    if (answer.reply.has_bounced())
      return absl::StrCat("bounce ", answer.ask, " ",
                          proto::BounceReason_Name(answer.reply.bounced().reason()));
    return absl::StrCat(
        "answer ", answer.ask, " ",
        absl::StatusCodeToString(static_cast<absl::StatusCode>(answer.reply.served().code())));
  }
  std::string Line(const Answer<proto::CreditGrant>& answer) { return absl::StrCat("hello ", answer.ask); }
  std::string Line(const Answer<proto::AdoptModelReply>& answer) {
    return absl::StrCat("adopted ", answer.ask, " ",
                        absl::StatusCodeToString(static_cast<absl::StatusCode>(answer.reply.code())));
  }
  std::string Line(const Answer<proto::MemberReport>& answer) {
    report_ = answer.reply;
    if (answer.reply.has_usage())
      return absl::StrCat("report ", answer.ask, ", statement ", answer.reply.usage().sequence());
    return absl::StrCat("report ", answer.ask);
  }
  std::string Line(const Answer<proto::TrialEnded>& answer) {
    ended_ = answer.reply;
    if (answer.reply.code() != 0)
      return absl::StrCat("trial ", answer.ask, " refused: ", answer.reply.message());
    const auto& row = answer.reply.row();
    return row.state() == proto::PROFILE_ROW_FAILED
               ? absl::StrCat("trial ", answer.ask, " failed: ", row.reason())
               : absl::StrCat("trial ", answer.ask, " measured");
  }
  std::string Line(const Answer<proto::DrainReply>& answer) { return absl::StrCat("drained ", answer.ask); }
  std::string Line(const Answer<absl::Status>& answer) {
    return absl::StrCat("fault ", answer.ask, " ", absl::StatusCodeToString(answer.reply.code()));
  }
  std::string Line(const Answer<proto::ExportedTensors>& answer) {
    return absl::StrCat("exported ", answer.ask, " ",
                        absl::StatusCodeToString(static_cast<absl::StatusCode>(answer.reply.code())));
  }
  static std::string Line(const Answer<proto::GivenUpStates>& answer) {
    return absl::StrCat("given up ", answer.ask, " ",
                        absl::StatusCodeToString(static_cast<absl::StatusCode>(answer.reply.code())),
                        answer.reply.images().empty() ? "" : " ", absl::StrJoin(answer.reply.images(), " "),
                        answer.reply.copied().empty() ? "" : ", copied to ",
                        absl::StrJoin(answer.reply.copied(), " "));
  }
  std::string Line(const Answer<proto::TakenOverStates>& answer) {
    taken_over_ = answer.reply;
    return absl::StrCat("taken over ", answer.ask, " ",
                        absl::StatusCodeToString(static_cast<absl::StatusCode>(answer.reply.code())));
  }
  static std::string Line(const Answer<proto::ReplicasInStep>& answer) {
    return absl::StrCat("in step ", answer.ask, " ",
                        absl::StatusCodeToString(static_cast<absl::StatusCode>(answer.reply.code())),
                        answer.reply.nodes().empty() ? "" : " ", absl::StrJoin(answer.reply.nodes(), " "));
  }
  static std::string Line(const Answer<proto::CopiedImage>& answer) {
    return absl::StrCat("copied ", answer.ask, " ",
                        absl::StatusCodeToString(static_cast<absl::StatusCode>(answer.reply.code())));
  }
  static std::string Line(const SendCopy& send) {
    return absl::StrCat(send.copy.ended() ? "end " : "copy ", send.number, " ",
                        send.copy.image().empty() ? "nothing" : send.copy.image(), " at ", send.address);
  }
  static std::string Line(const Answer<proto::FetchReply>& answer) {
    return absl::StrCat("part ", answer.ask, " ",
                        absl::StatusCodeToString(static_cast<absl::StatusCode>(answer.reply.code())));
  }
  static std::string Line(const ReadImage& read) {
    return absl::StrCat("read ", read.wish.image(), " for ", read.ask);
  }
  static std::string Line(const PullImages& pull) {
    return absl::StrCat("pull from ", pull.address, ":",
                        absl::StrJoin(pull.images, "", [](std::string* out, const PulledState& image) {
                          absl::StrAppend(out, " ", image.image);
                        }));
  }
  static std::string Line(const TellRouter&) { return {}; }
  std::string Line(const GiveOrder& give) {
    const auto& order = give.order;
    const auto [kind, what] = Words(order);
    orders_[{give.gpu, kind}] = order;
    return absl::StrCat("order ", give.gpu, " ", kind, what.empty() ? "" : " ", what);
  }
  static std::pair<std::string, std::string> Words(const proto::WorkerOrder& order) {
    switch (order.order_case()) {
      case proto::WorkerOrder::kPrepare:
        return {"prepare", order.prepare().model().digest()};
      case proto::WorkerOrder::kSwapIn:
        return {"swap-in", order.swap_in().model().digest()};
      case proto::WorkerOrder::kEvict:
        return {"evict", order.evict().digest()};
      case proto::WorkerOrder::kRun:
        return {"run", order.run().digest()};
      case proto::WorkerOrder::kCancel:
        return {"cancel", ""};
      case proto::WorkerOrder::kRelease:
        return {"release", ""};
      case proto::WorkerOrder::kPin:
        return {"pin", order.pin().digest()};
      case proto::WorkerOrder::kUnpin:
        return {"return", ""};
      case proto::WorkerOrder::kWriteBack:
        return {order.write_back().drop()     ? "drop"
                : order.write_back().prefix() ? "gather"
                                              : "write-back",
                order.write_back().digest() + Sequence(order.write_back().function())};
      case proto::WorkerOrder::kExportTensor:
        return {"export", ""};
      case proto::WorkerOrder::kPull:
        return {"pull", ""};
      default:
        return {"other", ""};
    }
  }
  static std::string Line(const KillRuntime& kill) { return absl::StrCat("kill ", kill.gpu); }
  static std::string Line(const AssignRuntime& assign) {
    return absl::StrCat("assign ", assign.gpu, " ", assign.assign.isolation_key());
  }
  static std::string Line(const FetchCopy& fetch) { return absl::StrCat("fetch ", fetch.copy); }
  static std::string Line(const PlaceCopy& place) { return absl::StrCat("place ", place.copy); }
  static std::string Line(const DropCopy& drop) { return absl::StrCat("drop ", drop.drop.model_digest()); }
  static std::string Line(const BringInputs& bring) { return absl::StrCat("bring ", bring.id.sequence); }
  static std::string Line(const ForgetInputs& forget) { return absl::StrCat("forget ", forget.id.sequence); }
  static std::string Line(const PlaceZeros&) { return "zeros"; }
  static std::string Line(const FreeZeros&) { return "free zeros"; }
  // " of ID" of a sequence; " of all" of what the keys of all begin with.
  static std::string Sequence(const std::string& key) {
    const auto at = key.find('#');
    if (at == std::string::npos) return "";
    return at + 1 == key.size() ? " of all" : " of " + key.substr(at + 1);
  }
  static std::string Line(const LoadImage& load) { return "load image" + Sequence(load.function); }
  static std::string Line(const SaveImage& save) {
    return absl::StrCat("save image ", save.batch, " of run ", save.image.runs());
  }
  static std::string Line(const KeepImage& keep) {
    return absl::StrCat("keep image of run ", keep.image->runs());
  }
  static std::string Line(const RestoreImage&) { return "restore image"; }
  static std::string Line(const UnloadImage& unload) { return "unload image" + Sequence(unload.function); }
  static std::string Line(const ForgetImage& forget) { return "forget image" + Sequence(forget.function); }
  static std::string Line(const SaveProfiles&) { return "save profiles"; }
  std::string Line(const SaveAdopted& save) {
    saved_ = save.adopted;
    return absl::StrCat("save ", save.adopted.functions_size(), " adopted");
  }
  static std::string Line(const ReadMeters&) { return "read meters"; }
  static std::string Line(const SaveUsage& save) {
    std::string line = absl::StrCat("save usage, statement ", save.usage.sequence());
    for (const auto& amount : save.usage.open().amounts())
      absl::StrAppend(&line, "; ", amount.tenant(), "/", amount.function(), " ", amount.runs(), " runs, ",
                      amount.host_kib_ms(), " KiB ms");
    return line;
  }
  static std::string Line(const DropMeter& drop) { return absl::StrCat("drop meter ", drop.page); }
  std::string Line(const Log& log) {
    told_.push_back(log.kind);
    return {};
  }
  static std::string Line(const WakeMe&) { return {}; }
  static std::string Line(const AskSince& ask) { return absl::StrCat("ask since ", ask.revision); }

  const NodeSettings settings_;
  Node node_;
  proto::ClusterUpdate saved_;
  std::map<GpuIndex, std::uint64_t> lives_;
  std::map<std::pair<GpuIndex, std::string>, proto::WorkerOrder> orders_;  // the latest order of each kind
};

}  // namespace troupe::node
