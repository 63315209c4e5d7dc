// NODE QUESTIONS: what the cluster asks of its nodes and tells them, as messages: copies of models, states that move, drains and
// trials. Each question is answered once, also when its node is lost. Owned by the cluster manager.
#pragma once

#include <functional>
#include <utility>

#include "actors/core/call.hpp"
#include "actors/manager/cluster_manager.hpp"
#include "actors/manager/member_links.hpp"
#include "base/wire_status.hpp"
#include "cluster/effects.hpp"

namespace troupe::actors {

template <class Self>
class NodeQuestions {
 public:
  using Hear = std::function<void(cluster::Event)>;

  NodeQuestions(Self* self, const MemberLinks& links, PendingCalls& calls, const ManagerOptions& options,
                Hear hear)
      : self_(self), links_(links), calls_(calls), options_(options), hear_(std::move(hear)) {}

  void Do(cluster::AskAdoption& ask) {
    proto::AdoptModel adopt;
    *adopt.mutable_function() = std::move(ask.function);
    adopt.set_node_epoch(ask.epoch);
    if (ask.replicas) *adopt.mutable_replicas() = *std::move(ask.replicas);
    cluster::AdoptionAnswered answered{ask.digest, ask.node, ask.epoch, adopt.function().key().name(), {}};
    Call<proto::AdoptModelReply>(
        self_, calls_, links_.Node(ask.node), options_.adopt_timeout, std::move(adopt),
        [this, answered = std::move(answered)](const absl::StatusOr<proto::AdoptModelReply>& reply) mutable {
          answered.status = StatusIn(reply);
          hear_(std::move(answered));
        });
  }
  void Do(cluster::TellDisowned& tell) {
    proto::DisownModel disown;
    disown.set_model_digest(std::move(tell.digest));
    self_->send(links_.Node(tell.node), std::move(disown));
  }
  void Do(cluster::AskGiveUp& ask) {
    Call<proto::GivenUpStates>(
        self_, calls_, links_.Node(ask.node), options_.adopt_timeout, std::move(ask.wish),
        [this, digest = ask.digest, move = ask.move](absl::StatusOr<proto::GivenUpStates> reply) {
          hear_(cluster::StatesGivenUp{digest, move, Checked(std::move(reply))});
        });
  }
  void Do(cluster::AskTakeOver& ask) {
    Call<proto::TakenOverStates>(
        self_, calls_, links_.Node(ask.node), options_.adopt_timeout, std::move(ask.wish),
        [this, digest = ask.digest, move = ask.move](const absl::StatusOr<proto::TakenOverStates>& reply) {
          hear_(cluster::StatesTakenOver{digest, move, StatusIn(reply)});
        });
  }
  void Do(cluster::TellForget& tell) {
    proto::ForgetStates forget;
    forget.set_model_digest(std::move(tell.digest));
    forget.set_term(tell.term);
    self_->send(links_.Node(tell.node), std::move(forget));
  }
  void Do(cluster::NameReplicas& name) {
    Call<proto::ReplicasInStep>(
        self_, calls_, links_.Node(name.node), kReplicasTimeout, std::move(name.wish),
        [this, digest = name.digest, question = name.question](absl::StatusOr<proto::ReplicasInStep> reply) {
          hear_(cluster::ReplicasAnswered{digest, question, Checked(std::move(reply))});
        });
  }
  void Do(cluster::AskDrain& ask) {
    Call<proto::DrainReply>(self_, calls_, links_.Node(ask.wish.name()), options_.ask_timeout, ask.wish,
                            [this, number = ask.ask](const absl::StatusOr<proto::DrainReply>& reply) {
                              hear_(cluster::DrainAnswered{number, reply.status()});
                            });
  }
  void Do(cluster::AskTrial& ask) {
    const auto experiment = ask.trial.experiment();
    // The node ends the trial by itself; what is left here is a node that does not answer.
    const auto limit = Duration(ask.trial.limit_ns()) + options_.trial_grace;
    Call<proto::TrialEnded>(self_, calls_, links_.Node(ask.node), limit, std::move(ask.trial),
                            [this, experiment](absl::StatusOr<proto::TrialEnded> ended) {
                              hear_(cluster::TrialAnswered{experiment, std::move(ended)});
                            });
  }
  void Do(cluster::TellTrialStopped& tell) { self_->send(links_.Node(tell.node), std::move(tell.stop)); }

 private:
  // The home answers when something changes; what it could not do before is tried anew with the next question.
  static constexpr Duration kReplicasTimeout = std::chrono::seconds(2);

  Self* const self_;
  const MemberLinks& links_;
  PendingCalls& calls_;
  const ManagerOptions& options_;
  const Hear hear_;
};

}  // namespace troupe::actors
