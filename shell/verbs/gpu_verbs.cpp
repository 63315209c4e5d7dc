// `gpu` and `kill gpu`: workers, what they hold, and how they take being killed.
#include <algorithm>

#include "absl/strings/ascii.h"
#include "base/status.hpp"
#include "shell/session.hpp"
#include "shell/text/cat.hpp"
#include "shell/verbs/all_verbs.hpp"
#include "shell/views.hpp"

namespace troupe::shell {

namespace {

absl::StatusOr<proto::AdminReply> AskGpus(Session& session, const std::string& node) {
  proto::AdminRequest request;
  request.mutable_list_gpus()->set_node(node);
  return session.Ask(request);
}

absl::Status GpuList(Session& session, const Arguments& arguments) {
  TROUPE_ASSIGN_OR_RETURN(const auto reply, AskGpus(session, arguments.Text("NODE")));
  if (session.json()) return session.PrintJson(reply), absl::OkStatus();
  if (reply.gpus().empty()) {
    session.out() << "no GPU answers; 'troupe node list' shows which nodes are there\n";
    return absl::OkStatus();
  }
  session.out() << GpuTable(reply).Render(session.style()) << ProblemLines(reply) << RegionLines(reply)
                << AlphaLines(reply);
  return absl::OkStatus();
}

absl::Status GpuShow(Session& session, const Arguments& arguments) {
  GpuName name;
  if (!ParseGpuName(arguments.Text("GPU"), name))
    return absl::InternalError("a GPU's name is checked before");
  TROUPE_ASSIGN_OR_RETURN(auto reply, AskGpus(session, name.node));
  auto& gpus = *reply.mutable_gpus();
  const auto other = [&](const proto::GpuStatus& gpu) { return gpu.gpu().index() != name.index; };
  gpus.erase(std::remove_if(gpus.begin(), gpus.end(), other), gpus.end());
  if (gpus.empty()) {
    return absl::NotFoundError(Cat("node '", name.node, "' has no GPU ", name.index,
                                   " that answers; 'troupe gpu list' shows those that do"));
  }
  if (session.json()) return session.PrintJson(reply), absl::OkStatus();
  // Residents are known by digest; people know functions.
  proto::AdminRequest request;
  request.mutable_list_functions();
  const auto functions = session.Ask(request);
  session.out() << GpuDetails(gpus[0], functions.ok() ? *functions : proto::AdminReply(), session.style())
                << AlphaLines(reply);
  return absl::OkStatus();
}

absl::StatusOr<bool> Confirmed(Session& session, const std::string& question) {
  auto& console = session.console();
  console.err() << question << " [y/N] " << std::flush;
  std::string answer;
  if (!console.ReadLine(answer)) console.err() << '\n';
  answer = absl::AsciiStrToLower(absl::StripAsciiWhitespace(answer));
  return answer == "y" || answer == "yes";
}

absl::Status KillGpu(Session& session, const Arguments& arguments) {
  GpuName name;
  if (!ParseGpuName(arguments.Text("GPU"), name))
    return absl::InternalError("a GPU's name is checked before");
  const std::string text = Printable(arguments.Text("GPU"));
  if (!arguments.Has("--yes")) {
    TROUPE_ASSIGN_OR_RETURN(const bool yes, Confirmed(session, Cat("Kill the worker of GPU ", text,
                                                                   "? Its requests run again elsewhere.")));
    if (!yes) return absl::AbortedError("not confirmed; nothing was killed (say y, or give --yes)");
  }
  proto::AdminRequest request;
  request.mutable_kill_gpu()->set_node(name.node);
  request.mutable_kill_gpu()->set_gpu(name.index);
  TROUPE_ASSIGN_OR_RETURN(const auto reply, session.Ask(request, "killing"));
  if (session.json()) return session.PrintJson(reply), absl::OkStatus();
  session.out() << "the worker of GPU " << text
                << " is being killed; 'troupe events' tells how it comes back\n";
  return absl::OkStatus();
}

}  // namespace

std::vector<Verb> GpuVerbs() {
  return {
      {.group = "gpu",
       .name = "list",
       .summary = "The GPUs: state, memory, residents, load",
       .arguments = {{.name = "NODE", .kind = Kind::kNode, .help = "only those of this node"}},
       .run = GpuList},
      {.group = "gpu",
       .name = "show",
       .summary = "One GPU: its memory by model, its link, what runs, its latest swaps",
       .arguments = {{.name = "GPU", .kind = Kind::kGpu, .help = "NODE/N", .required = true}},
       .run = GpuShow},
      {.group = "kill",
       .name = "gpu",
       .summary = "Kill the worker of a GPU, to see the cluster recover",
       .arguments = {{.name = "GPU", .kind = Kind::kGpu, .help = "NODE/N", .required = true},
                     {.name = "--yes", .kind = Kind::kFlag, .help = "do not ask"}},
       .run = KillGpu},
  };
}

}  // namespace troupe::shell
