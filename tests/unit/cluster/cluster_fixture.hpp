// A cluster that a test gives events, and whose effects it reads as text.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <deque>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "cluster/cluster.hpp"
#include "cluster/records/record_keys.hpp"
#include "proto/precision.hpp"
#include "tests/unit/cluster/records.hpp"

namespace troupe::cluster {

class ClusterTest : public testing::Test {
 protected:
  using Lines = std::vector<std::string>;

  static ClusterSettings Settings() {
    ClusterSettings settings;
    settings.replicas = 1;
    settings.collect_every = std::chrono::hours(1000);
    return settings;
  }
  explicit ClusterTest(ClusterSettings settings = Settings()) : settings_(std::move(settings)) {}

  // A cluster that starts with the records of its store.
  Lines Begin(CatalogueRecords records = {}) {
    cluster_.emplace(settings_, *Catalogue::Of(std::move(records), "c"));
    commits_.clear();
    return On(Started());
  }

  // The effects of the last event as text, in order; timers are left out.
  Lines On(Event event) {
    Lines lines;
    for (const auto& effect : cluster_->On(std::move(event), now, now.time_since_epoch().count())) {
      const auto line = std::visit([this](const auto& wanted) { return this->Line(wanted); }, effect);
      if (!line.empty()) lines.push_back(line);
    }
    return lines;
  }
  // Time passes until the cluster's next pulse.
  Lines Pulse(Duration passed = std::chrono::milliseconds(50)) {
    now += passed;
    return On(TimerFired{Timer::kPulse});
  }
  // The oldest commit is durable, or could not be stored.
  Lines Stored(absl::Status status = {}) {
    if (commits_.empty()) return {"nothing is on its way to the store"};
    const auto ticket = commits_.front();
    commits_.pop_front();
    return On(Committed{ticket, std::move(status)});
  }
  Lines Written(absl::Status status = {}) { return On(AuditWritten{entry_, std::move(status)}); }

  // --- members ---
  // `adopted`: digests of the models that it says it has.
  Lines JoinNode(const std::string& name, Ask ask = 1, const std::string& kind = "virtual",
                 const std::vector<std::string>& adopted = {}) {
    JoinAsked asked{.ask = ask, .daemon = absl::StrCat(name, "-", ask)};
    asked.join.set_cluster(disk_);
    auto& member = *asked.join.mutable_member();
    member.set_name(name);
    member.set_kind(proto::MEMBER_NODE);
    member.set_address(name);
    member.set_host_region_bytes(GiB(1).count());
    auto& gpu = *member.add_gpus();
    gpu.set_memory_bytes(GiB(1).count());
    gpu.set_state("ready");
    gpu.set_kind(kind);
    for (const auto& digest : adopted) asked.join.add_adopted(digest);
    return On(std::move(asked));
  }
  // A gateway joins; `process`: the process in which its runs run.
  Lines JoinGateway(const std::string& name, std::uint32_t process, Ask ask = 1) {
    JoinAsked asked{.ask = ask, .daemon = absl::StrCat(name, "-", ask), .gateway = true, .front = process};
    asked.join.mutable_member()->set_name(name);
    asked.join.mutable_member()->set_kind(proto::MEMBER_GATEWAY);
    asked.join.mutable_member()->set_address(name);
    return On(std::move(asked));
  }
  Lines Hears(const std::string& name, std::uint64_t epoch) {
    HeartbeatHeard heard{.ask = 1};
    heard.heartbeat.set_name(name);
    heard.heartbeat.set_epoch(epoch);
    heard.heartbeat.set_sequence(++heartbeats_);
    return On(std::move(heard));
  }
  // The node answers the last adoption that it was asked for.
  Lines Adopted(absl::Status status = {}) {
    if (!adoption_) return {"no adoption was asked for"};
    return On(AdoptionAnswered{adoption_->digest, adoption_->node, adoption_->epoch,
                               adoption_->function.key().name(), std::move(status)});
  }

  // The adoptions that AllAdopted would answer.
  [[nodiscard]] const std::vector<AskAdoption>& adoptions() const { return adoptions_; }
  Lines Answered(const AskAdoption& ask, absl::Status status = {}) {
    return On(
        AdoptionAnswered{ask.digest, ask.node, ask.epoch, ask.function.key().name(), std::move(status)});
  }

  // The node answers the last question to give up, or to take over, states.
  Lines GivenUp(const std::vector<std::string>& images, const std::vector<std::string>& copied = {}) {
    proto::GivenUpStates reply;
    for (const auto& node : copied) reply.add_copied(node);
    for (const auto& image : images) reply.add_images(image);
    return On(StatesGivenUp{give_up_->digest, give_up_->move, std::move(reply)});
  }
  Lines GivenUp(const absl::Status& why) { return On(StatesGivenUp{give_up_->digest, give_up_->move, why}); }
  Lines TakenOver(absl::Status status = {}) {
    return On(StatesTakenOver{take_over_->digest, take_over_->move, std::move(status)});
  }

  // The home answers the last question for the nodes that are in step.
  Lines InStep(const std::vector<std::string>& nodes) {
    proto::ReplicasInStep reply;
    for (const auto& node : nodes) reply.add_nodes(node);
    return On(ReplicasAnswered{named_->digest, named_->question, std::move(reply)});
  }

  // The nodes answer all adoptions that were asked for since the last call.
  void AllAdopted() {
    for (const AskAdoption& ask : std::exchange(adoptions_, {}))
      On(AdoptionAnswered{ask.digest, ask.node, ask.epoch, ask.function.key().name(), absl::OkStatus()});
  }

  // --- functions, runs ---
  enum class State { kNone, kKept };
  // `like`: the function whose model this one has, too; empty: it has a model of its own.
  Lines Deploy(const std::string& name, Ask ask, State state = State::kNone, std::uint32_t replicas = 0,
               const std::string& like = "") {
    AdminAsked asked{.ask = ask, .asker = {.who = "key/dev"}};
    auto& deploy = *asked.request.mutable_deploy();
    deploy.set_name(name);
    deploy.set_onnx_digest("onnx");
    auto imported = FunctionOf(like.empty() ? name : like);
    imported.mutable_key()->set_name(name);
    if (state == State::kKept) {
      deploy.add_state()->set_input("x");
      deploy.mutable_state(0)->set_output("y");
      deploy.set_state_replicas(replicas);
      imported.mutable_inputs(0)->set_shape(0, 4);
      imported.mutable_outputs(0)->set_shape(0, 4);
    }
    On(std::move(asked));
    return On(ModelImported{ask, std::move(imported)});
  }
  Lines RemoveFunction(const std::string& name, Ask ask) {
    AdminAsked asked{.ask = ask};
    asked.request.mutable_remove()->mutable_key()->set_name(name);
    return On(std::move(asked));
  }
  Lines Start(const std::string& run, Ask ask, Runner asker, const std::string& gateway,
              bool resumes = false) {
    StartAsked asked{.ask = ask, .command = StartOf(run), .asker = asker};
    asked.command.set_gateway(gateway);
    asked.command.set_resumes(resumes);
    return On(std::move(asked));
  }
  // A store with the workflow "flow" and, with a name, a run of it at gateway "g1".
  static CatalogueRecords Records(const std::string& run = {}) {
    CatalogueRecords records;
    records.cluster = "c";
    records.workflows.push_back(FlowOf("flow"));
    if (run.empty()) return records;
    proto::RunRecord record;
    *record.mutable_start() = StartOf(run);
    record.mutable_start()->set_gateway("g1");
    record.set_gateway("g1");
    record.set_state(proto::RUN_RUNNING);
    records.runs.push_back(std::move(record));
    return records;
  }

  Time now{std::chrono::seconds(100)};
  std::string disk_{};           // the cluster of which nodes that join say that they were members
  proto::AdminReply reply_{};    // the newest answer to a person
  proto::StageBounds bounds_{};  // of the last import that was asked for
  std::uint64_t change_ = 0;     // the number of the change in the newest entry of the audit
  std::map<std::string, proto::FunctionRecord>
      written_;                    // by function: as it was given to the store for the last time
  proto::PlacementRecord home_{};  // of a model with state: as it was given to the store for the last time
  // The last question of each kind to a node.
  std::optional<AskAdoption> adoption_;
  std::optional<AskGiveUp> give_up_;
  std::optional<AskTakeOver> take_over_;
  std::optional<NameReplicas> named_;

 private:
  template <class Reply>
  static std::string Code(const Reply& reply) {
    return absl::StatusCodeToString(static_cast<absl::StatusCode>(reply.code()));
  }
  static std::string Line(const Answer<proto::JoinReply>& answer) {
    return absl::StrCat(
        "joined ", answer.ask, " ",
        answer.reply.code() == 0 ? absl::StrCat("epoch ", answer.reply.epoch()) : Code(answer.reply));
  }
  static std::string Line(const Answer<proto::HeartbeatReply>& answer) {
    if (answer.reply.usage_stored() > 0)
      return absl::StrCat("heard, usage ", answer.reply.usage_stored(), " stored");
    return answer.reply.known() ? "heard" : "unknown";
  }
  std::string Line(const Answer<proto::AdminReply>& answer) {
    reply_ = answer.reply;
    return absl::StrCat("answer ", answer.ask, " ", Code(answer.reply));
  }
  static std::string Line(const Answer<proto::RunReply>& answer) {
    return absl::StrCat("run ", answer.ask, " ", Code(answer.reply));
  }
  static std::string Line(const Answer<proto::ModelPlaces>& answer) {
    std::string line = "places";
    for (int i = 0; i < answer.reply.places_size(); ++i) {
      const bool relays = static_cast<std::uint32_t>(i) < answer.reply.relays();
      absl::StrAppend(&line, relays ? " behind " : " ", answer.reply.places(i).node(), "@",
                      answer.reply.places(i).address());
    }
    return line;
  }
  static std::string Line(const DropAsk& drop) { return absl::StrCat("drop ", drop.ask); }
  static std::string Line(const ShowImports& show) { return absl::StrCat("imports ", show.ask); }
  std::string Line(const Commit& commit) {
    commits_.push_back(commit.ticket);
    for (const Change& change : commit.changes.all()) {
      proto::FunctionRecord record;
      if (change.table == Table::kFunctions && change.value && record.ParseFromString(*change.value))
        written_[record.key().name()] = std::move(record);
      if (proto::PlacementRecord home;
          change.key.starts_with(kHomeKey) && change.value && home.ParseFromString(*change.value))
        home_ = std::move(home);
    }
    return absl::StrCat("store ",
                        absl::StrJoin(commit.changes.all(), " ", [](std::string* out, const Change& change) {
                          absl::StrAppend(out, change.value ? "" : "-", change.key);
                        }));
  }
  std::string Line(const WriteAudit& write) {
    entry_ = write.ticket;
    change_ = write.entry.change;
    return absl::StrCat("audit ", write.entry.action, " ", write.entry.who, " ",
                        write.entry.begun ? "begun" : absl::StatusCodeToString(write.entry.result.code()));
  }
  static std::string Line(const Connect& connect) { return absl::StrCat("connect ", connect.name); }
  static std::string Line(const Disconnect& gone) { return absl::StrCat("disconnect ", gone.name); }
  static std::string Line(const TellMembers&) { return "tell members"; }
  std::string Line(const AskAdoption& ask) {
    adoption_ = ask;
    adoptions_.push_back(ask);
    return absl::StrCat("adopt ", ask.function.key().name(), " at ", ask.node);
  }
  static std::string Line(const TellDisowned& tell) { return absl::StrCat("disown at ", tell.node); }
  std::string Line(const AskGiveUp& ask) {
    give_up_ = ask;
    return absl::StrCat("give up ", absl::StrJoin(ask.wish.functions(), " "), " at ", ask.node);
  }
  std::string Line(const AskTakeOver& ask) {
    take_over_ = ask;
    return absl::StrCat("take over ", absl::StrJoin(ask.wish.images(), " "), " at ", ask.node, " from ",
                        ask.wish.from_address());
  }
  static std::string Line(const TellForget& tell) { return absl::StrCat("forget at ", tell.node); }
  std::string Line(const NameReplicas& name) {
    named_ = name;
    return absl::StrCat("name to ", name.node, ":",
                        absl::StrJoin(name.wish.replicas(), "", [](std::string* out, const auto& replica) {
                          absl::StrAppend(out, " ", replica.node(), replica.in_step() ? "+" : "");
                        }));
  }
  static std::string Line(const AskTrial& ask) {
    return absl::StrCat("trial of ", ask.trial.sm_partition(), "/", ask.trial.quota_limit(), "/",
                        ask.trial.batch(), " at ", ask.node);
  }
  static std::string Line(const TellTrialStopped& tell) { return absl::StrCat("stop trial at ", tell.node); }
  static std::string Line(const AskDrain& ask) {
    return absl::StrCat(ask.wish.drain() ? "drain " : "resume ", ask.wish.name());
  }
  static std::string Line(const KillGpu& kill) { return absl::StrCat("kill at ", kill.kill.node()); }
  static std::string Line(const DescribeNode& describe) { return absl::StrCat("describe ", describe.node); }
  static std::string Line(const DescribeGateway& describe) {
    return absl::StrCat("describe ", describe.gateway);
  }
  static std::string Line(const CarryFault& carry) { return absl::StrCat("fault ", carry.ask); }
  static std::string Line(const WatchRunner& watch) { return absl::StrCat("watch ", watch.runner.actor); }
  static std::string Line(const CancelRunner& cancel) { return absl::StrCat("cancel ", cancel.runner.actor); }
  static std::string Line(const TellTaken& tell) {
    return absl::StrCat("tell ", tell.runner.actor, " of claim ", tell.taken.claim());
  }
  static std::string Line(const GoOn& go_on) {
    return absl::StrCat("go on with ", go_on.message.run().start().run(), " at ", go_on.gateway);
  }
  std::string Line(const ImportModel& import) {
    bounds_ = import.stages.bounds;
    return absl::StrCat("import ", import.onnx_digest, " in ", std::string(proto::Name(import.precision)),
                        import.stages.number == 1 ? "" : absl::StrCat(", stage ", import.stages.number));
  }
  static std::string Line(const MakeKey& make) { return absl::StrCat("make key ", make.key.name()); }
  static std::string Line(const OrderMachine& order) { return Describe(order.action); }
  static std::string Line(const CollectObjects&) { return "collect"; }
  static std::string Line(const Note& note) {
    return absl::StrCat(note.event.member(), ": ", note.event.kind());
  }
  static std::string Line(const WakeMe&) { return {}; }

  const ClusterSettings settings_;
  std::optional<Cluster> cluster_;
  std::deque<std::uint64_t> commits_;   // commits that the store has not answered
  std::uint64_t entry_ = 0;             // the number of the newest entry of the audit
  std::vector<AskAdoption> adoptions_;  // that AllAdopted has not answered
  std::uint64_t heartbeats_ = 0;
};

}  // namespace troupe::cluster
