// `cluster` and `node`: the members and their state.
#include "base/status.hpp"
#include "shell/session.hpp"
#include "shell/text/cat.hpp"
#include "shell/verbs/all_verbs.hpp"
#include "shell/views.hpp"

namespace troupe::shell {

namespace {

absl::StatusOr<proto::AdminReply> AskStatus(Session& session) {
  proto::AdminRequest request;
  request.mutable_cluster_status();
  return session.Ask(request);
}

absl::Status ClusterStatus(Session& session, const Arguments&) {
  TROUPE_ASSIGN_OR_RETURN(const auto reply, AskStatus(session));
  if (session.json()) return session.PrintJson(reply), absl::OkStatus();
  session.out() << ClusterSummary(reply.status(), session.style());
  const auto members = MemberTable(reply.status());
  if (!members.empty()) session.out() << '\n' << members.Render(session.style());
  return absl::OkStatus();
}

absl::Status NodeList(Session& session, const Arguments&) {
  TROUPE_ASSIGN_OR_RETURN(auto reply, AskStatus(session));
  proto::ClusterStatusReply nodes;
  for (const auto& member : reply.status().members())
    if (member.member().kind() == proto::MEMBER_NODE) *nodes.add_members() = member;
  if (session.json()) {
    *reply.mutable_status()->mutable_members() = nodes.members();
    return session.PrintJson(reply), absl::OkStatus();
  }
  if (nodes.members().empty()) {
    session.out()
        << "no node has joined; those of a manager that has just started come back within seconds, and a new "
           "one is started with: trouped --role node --manager "
        << session.options().manager << '\n';
    return absl::OkStatus();
  }
  session.out() << NodeTable(nodes).Render(session.style());
  return absl::OkStatus();
}

absl::Status NodeDrain(Session& session, const Arguments& arguments) {
  const bool undo = arguments.Has("--undo");
  proto::AdminRequest request;
  request.mutable_drain()->set_name(arguments.Text("NAME"));
  request.mutable_drain()->set_drain(!undo);
  TROUPE_ASSIGN_OR_RETURN(const auto reply, session.Ask(request, "draining"));
  if (session.json()) return session.PrintJson(reply), absl::OkStatus();
  session.out() << Printable(arguments.Text("NAME"))
                << (undo ? " takes part again" : " takes no new requests; what it holds is finished")
                << (reply.message().empty() ? "" : " (" + Printable(reply.message()) + ")") << '\n';
  return absl::OkStatus();
}

}  // namespace

std::vector<Verb> ClusterVerbs() {
  return {
      {.group = "cluster",
       .name = "status",
       .summary = "Members, functions and load at a glance",
       .run = ClusterStatus},
      {.group = "node", .name = "list", .summary = "The nodes: state, GPUs, load", .run = NodeList},
      {.group = "node",
       .name = "drain",
       .summary = "Let a node finish what it holds and take nothing new",
       .arguments = {{.name = "NAME", .kind = Kind::kNode, .help = "the node", .required = true},
                     {.name = "--undo", .kind = Kind::kFlag, .help = "let it take part again"}},
       .run = NodeDrain},
  };
}

}  // namespace troupe::shell
