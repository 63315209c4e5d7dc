#include "sim/checkers/step_watch.hpp"

#include <caf/message.hpp>

#include "absl/strings/str_cat.h"
#include "actors/core/protobuf_adapter.hpp"
#include "proto/request.pb.h"
#include "sim/checkers/question.hpp"
#include "sim/checkers/run_check.hpp"
#include "sim/checkers/tensor_check.hpp"

namespace troupe::sim {

void StepWatch::Told(const std::string& gateway, const proto::RunRecord& run) {
  if (run.start().workflow() != workflow_ || run.start().inputs().empty()) return;
  for (const auto& step : run.steps()) {
    const auto function = function_of_step_.find(step.step());
    if (function == function_of_step_.end() || OnlyKept(step)) continue;
    told_.try_emplace({gateway, FirstRow(QuestionOf(run)), function->second}, now_());
  }
}

void StepWatch::Sent(const Passage& passage, const caf::message& content) {
  if (content.empty() || !content.match_element<proto::SubmitRequest>(0)) return;
  const auto& submit = content.get_as<proto::SubmitRequest>(0);
  if (submit.workflow() != workflow_ || submit.inputs().empty()) return;
  const auto& data = submit.inputs(0).data();
  const auto input = FirstRow(data.has_kept() && read_kept_ ? read_kept_(data.kept()) : data.inlined());
  if (runs_ && submit.function().name() == conditional_ && !input.empty() && !runs_(input))
    broken_.push_back(absl::StrCat(passage.from, " asks ", passage.to, " for ", conditional_,
                                   " of the run of '", input,
                                   "', whose condition says that this step does not run"));
  const auto told = told_.find({passage.from, input, submit.function().name()});
  // What it hears at this moment may yet call back what it had asked before.
  if (told == told_.end() || told->second >= now_()) return;
  broken_.push_back(
      absl::StrCat(passage.from, " asks ", passage.to, " for ", submit.function().name(), " of the run of '",
                   input, "' at ", FormatDuration(now_().time_since_epoch()), ", and was told at ",
                   FormatDuration(told->second.time_since_epoch()), " that this step is committed"));
}

void StepWatch::Arrives(const Passage& passage, caf::message& content) {
  if (content.empty()) return;
  if (content.match_element<proto::ContinueRun>(0)) {
    Told(passage.to, content.get_as<proto::ContinueRun>(0).run());
    resumed_ += content.get_as<proto::ContinueRun>(0).run().steps_size() > 0 ? 1 : 0;
  }
  if (content.match_element<proto::RunReply>(0)) Told(passage.to, content.get_as<proto::RunReply>(0).run());
  if (!hide_) return;
  if (content.match_element<proto::ContinueRun>(0))
    content.get_mutable_as<proto::ContinueRun>(0).mutable_run()->clear_steps();
  if (content.match_element<proto::RunReply>(0))
    content.get_mutable_as<proto::RunReply>(0).mutable_run()->clear_steps();
}

}  // namespace troupe::sim
