#include "actors/manager/provision_orders.hpp"

#include <google/protobuf/util/json_util.h>

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "gateway/json_text.hpp"

namespace troupe::actors {

namespace {

std::string NameOf(const cluster::ProvisionAction& action) {
  using Kind = cluster::ProvisionAction::Kind;
  if (action.kind == Kind::kAdd) return "add";
  return action.kind == Kind::kReplace ? "replace" : "drain";
}

}  // namespace

ProvisionOrder OrderOf(const cluster::ProvisionAction& action, const proto::ClusterStatusReply& status) {
  std::string members;
  static_cast<void>(google::protobuf::util::MessageToJsonString(status, &members));
  std::string node;
  gateway::AppendJsonText(node, action.node);
  auto json =
      absl::StrCat("{\"action\":\"", NameOf(action), "\",\"node\":", node, ",\"status\":", members, "}\n");
  return {NameOf(action), action.node, std::move(json)};
}

}  // namespace troupe::actors
