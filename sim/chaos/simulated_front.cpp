#include "sim/chaos/simulated_front.hpp"

#include <utility>

#include "absl/strings/str_cat.h"
#include "actors/gateway/front.hpp"

namespace troupe::sim {

namespace {

proto::InferReply Refused(const std::string& why) {
  proto::InferReply reply;
  reply.set_code(static_cast<int>(absl::StatusCode::kResourceExhausted));
  reply.set_message(why);
  return reply;
}

gateway::IdempotencyTable::AnswerPtr AnswerOf(const proto::InferReply& reply) {
  auto answer = std::make_shared<gateway::IdempotencyTable::Answer>();
  answer->code = reply.code() == 0 ? 200 : 503;
  answer->body = reply.SerializeAsString();
  return answer;
}

proto::InferReply ReplyOf(const gateway::IdempotencyTable::AnswerPtr& answer) {
  proto::InferReply reply;
  reply.ParseFromString(answer->body);
  return reply;
}

}  // namespace

void SimulatedFront::Infer(proto::InferRequest request, const std::string& key, Done done) {
  const auto& function = request.function();
  const bool is_workflow =
      world_.gateway(index_).view->Get()->FindWorkflow(function.name(), function.version()) != nullptr;
  if (ignores_ && is_workflow && request.inputs_size() > 1)
    request.mutable_inputs(1)->mutable_data()->set_inlined(std::string(1, '\1'));
  if (function.name() == pinned_.function) Pin(request);
  if (!key.empty() && !is_workflow) return InferOnce(std::move(request), key, std::move(done));
  if (!key.empty()) request.set_run_key(changes_ ? absl::StrCat(key, "-", ++changed_) : key);
  Ask(std::move(request), [done = std::move(done)](const proto::InferReply& reply) { done(reply, false); });
}

void SimulatedFront::Pin(proto::InferRequest& request) {
  if (request.function().version().empty() && ++pinned_.asked % pinned_.every == 0)
    request.mutable_function()->set_version("1");
}

// As gateway/infer_exchange does.
void SimulatedFront::InferOnce(proto::InferRequest request, const std::string& key, Done done) {
  using Verdict = Table::Verdict;
  const auto name = absl::StrCat(request.function().name(), "\n", request.function().version(), "\n", key);
  const auto fingerprint = request.inputs(0).data().inlined();
  const auto decision =
      keys_.Begin(forgets_ ? absl::StrCat(name, ++changed_) : name, fingerprint, world_.Now(),
                  [done](const Table::AnswerPtr& answer) { done(ReplyOf(answer), true); });
  switch (decision.verdict) {
    case Verdict::kWait:
      return;
    case Verdict::kKept:
      return done(ReplyOf(decision.answer), true);
    case Verdict::kOtherBody:
      return done(Refused("this Idempotency-Key was used for another request"), false);
    case Verdict::kFull:
      return done(Refused("too many requests with an Idempotency-Key are under way"), false);
    case Verdict::kRun:
      break;
  }
  Ask(std::move(request), [this, name, run = decision.run, done](const proto::InferReply& reply) {
    keys_.Finish(name, run, AnswerOf(reply), world_.Now());
    done(reply, false);
  });
}

// Lives as long as its gateway's last call.
void SimulatedFront::Ask(proto::InferRequest request, std::function<void(const proto::InferReply&)> done) {
  world_.gateway(index_).front->Infer(std::move(request), [self = shared_from_this(), done = std::move(done)](
                                                              const proto::InferReply& reply) {
    for (int i = 0; i < (self->counts_twice_ ? 2 : 1); ++i) self->statistics_.Observe(reply, Duration(), 0);
    done(reply);
  });
}

void SimulatedFront::Cancel(std::uint64_t call) {
  world_.gateway(index_).front->Cancel(call);
}

GatewayCount SimulatedFront::count() const {
  auto count = who_;
  count.served = statistics_.totals().served;
  count.failed = statistics_.totals().failed;
  return count;
}

}  // namespace troupe::sim
