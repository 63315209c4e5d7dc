#include "cluster/admin/inquiries.hpp"

#include <utility>

#include "absl/strings/str_cat.h"
#include "cluster/failure.hpp"
#include "cluster/parts.hpp"

namespace troupe::cluster {

void Inquiries::ListGpus(Ask ask, const std::string& node) {
  AskNodes(ask, node, About::kGpus, {});
}

void Inquiries::ShowFunctions(Ask ask, const proto::FunctionKey& key) {
  auto listed = AnswerFunctionQuery(key, parts_.State());
  if (listed.code() != 0) return parts_.admin.Reply(ask, std::move(listed));
  AskNodes(ask, "", About::kResidency, std::move(listed));
}

void Inquiries::AskNodes(Ask ask, const std::string& only, About about, proto::AdminReply known) {
  const auto number = ++last_;
  std::size_t asked = 0;
  for (const auto& node : parts_.members.nodes()) {
    if (!only.empty() && only != node) continue;
    parts_.out.Add(DescribeNode{number, node});
    ++asked;
  }
  if (asked > 0) {
    inquiries_.emplace(number, Inquiry{ask, about, std::move(known), asked});
  } else if (only.empty()) {
    parts_.admin.Reply(ask, std::move(known));
  } else {
    parts_.admin.Reply(
        ask, Failure<proto::AdminReply>(absl::NotFoundError(absl::StrCat("there is no node '", only, "'"))));
  }
}

void Inquiries::On(const NodeDescribed& event) {
  const auto it = inquiries_.find(event.inquiry);
  if (it == inquiries_.end()) return;
  auto& inquiry = it->second;
  if (event.description.ok())
    (inquiry.about == About::kGpus ? GpusOf : AddResidency)(*event.description, inquiry.reply);
  if (--inquiry.open > 0) return;
  const auto ended = inquiries_.extract(it);
  parts_.admin.Reply(ended.mapped().ask, ended.mapped().reply);
}

}  // namespace troupe::cluster
