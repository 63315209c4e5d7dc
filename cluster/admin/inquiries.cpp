#include "cluster/admin/inquiries.hpp"

#include <utility>

#include "absl/strings/str_cat.h"
#include "cluster/failure.hpp"
#include "cluster/parts.hpp"
#include "cluster/slo/slo_answers.hpp"
#include "cluster/slo/slo_tracker.hpp"

namespace troupe::cluster {

void Inquiries::ListGpus(Ask ask, const std::string& node) {
  const auto number = ++last_;
  const auto asked = AskNodes(number, node);
  if (asked == 0 && !node.empty()) {
    const auto missing = absl::NotFoundError(absl::StrCat("there is no node '", node, "'"));
    return parts_.admin.Reply(ask, Failure<proto::AdminReply>(missing));
  }
  Begin(number, {.ask = ask, .about = About::kGpus}, asked);
}

void Inquiries::ShowFunctions(Ask ask, const proto::FunctionKey& key) {
  auto listed = AnswerFunctionQuery(key, parts_.State());
  if (listed.code() != 0) return parts_.admin.Reply(ask, std::move(listed));
  const auto number = ++last_;
  auto asked = AskNodes(number, "");
  // A list shows no SLO.
  if (!key.name().empty()) asked += AskGateways(number, {});
  Begin(number, {.ask = ask, .about = About::kFunctions, .reply = std::move(listed)}, asked);
}

void Inquiries::ShowSlo(Ask ask, const proto::FunctionKey& key) {
  if (!key.name().empty()) {
    auto listed = AnswerFunctionQuery(key, parts_.State());
    if (listed.code() != 0) return parts_.admin.Reply(ask, std::move(listed));
  }
  const auto number = ++last_;
  Begin(number, {.ask = ask, .about = About::kSlos, .key = key}, AskGateways(number, {}));
}

void Inquiries::Explain(Ask ask, const std::string& id) {
  proto::DescribeGateway wish;
  wish.set_requests(true);
  wish.set_id(id);
  const auto number = ++last_;
  Begin(number, {.ask = ask, .about = About::kRequests, .id = id}, AskGateways(number, wish));
}

std::size_t Inquiries::AskNodes(std::uint64_t number, const std::string& only) {
  std::size_t asked = 0;
  for (const auto& node : parts_.members.nodes()) {
    if (!only.empty() && only != node) continue;
    parts_.out.Add(DescribeNode{number, node});
    ++asked;
  }
  return asked;
}

std::size_t Inquiries::AskGateways(std::uint64_t number, const proto::DescribeGateway& ask) {
  std::size_t asked = 0;
  for (const auto& [name, member] : parts_.members.table().members()) {
    const auto state = member.record.state();
    if (member.record.kind() != proto::MEMBER_GATEWAY || state == proto::MEMBER_DEAD ||
        state == proto::MEMBER_LEFT)
      continue;
    parts_.out.Add(DescribeGateway{number, name, ask});
    ++asked;
  }
  return asked;
}

void Inquiries::Begin(std::uint64_t number, Inquiry inquiry, std::size_t asked) {
  if (asked == 0) return End(inquiry);
  inquiry.open = asked;
  inquiries_.emplace(number, std::move(inquiry));
}

void Inquiries::On(const NodeDescribed& event) {
  const auto it = inquiries_.find(event.inquiry);
  if (it == inquiries_.end()) return;
  auto& inquiry = it->second;
  if (event.description.ok())
    (inquiry.about == About::kGpus ? GpusOf : AddResidency)(*event.description, inquiry.reply);
  CountAnswer(event.inquiry);
}

void Inquiries::On(const GatewayDescribed& event) {
  const auto it = inquiries_.find(event.inquiry);
  if (it == inquiries_.end()) return;
  auto& inquiry = it->second;
  if (event.description.ok()) {
    const auto& gateway = *event.description;
    if (inquiry.about == About::kFunctions) AddSlosToFunctions(gateway, inquiry.reply);
    if (inquiry.about == About::kSlos) AddSlos(gateway, inquiry.key, inquiry.reply);
    if (inquiry.about == About::kRequests) AddTimelines(gateway, inquiry.id, inquiry.reply);
  }
  CountAnswer(event.inquiry);
}

void Inquiries::CountAnswer(std::uint64_t number) {
  const auto it = inquiries_.find(number);
  if (--it->second.open > 0) return;
  auto ended = inquiries_.extract(it);
  End(ended.mapped());
}

void Inquiries::End(Inquiry& inquiry) {
  if (!inquiry.id.empty() && inquiry.reply.timelines().empty()) {
    const auto unknown = absl::NotFoundError(absl::StrCat(
        "no gateway remembers a request with the id '", inquiry.id, "': each keeps its newest ",
        SloTracker::kWithId, " that have one; without an id the slowest of the last minute are shown"));
    return parts_.admin.Reply(inquiry.ask, Failure<proto::AdminReply>(unknown));
  }
  parts_.admin.Reply(inquiry.ask, std::move(inquiry.reply));
}

}  // namespace troupe::cluster
