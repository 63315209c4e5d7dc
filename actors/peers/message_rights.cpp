#include "actors/peers/message_rights.hpp"

#include <algorithm>
#include <array>
#include <string>
#include <unordered_map>

#include "absl/strings/str_cat.h"
#include "actors/peers/peer_kinds.hpp"
#include "base/status.hpp"

namespace troupe::actors {

namespace {

using security::Role;
using security::Roles;

constexpr Roles kManager = {Role::kManager};
constexpr Roles kGateway = {Role::kGateway};
constexpr Roles kNode = {Role::kNode};
constexpr Roles kAdmin = {Role::kAdmin};
constexpr Roles kMembers = {Role::kGateway, Role::kNode};
constexpr Roles kOperators = {Role::kAdmin, Role::kGateway};
constexpr Roles kReaders = {Role::kReader, Role::kAdmin, Role::kGateway};

enum class Sender : bool { kAny, kNamed };
struct Row {
  std::string_view types;
  Roles from;
  Sender sender = Sender::kAny;  // kNamed: the receiving actor asks which peer sent it
};

constexpr std::string_view kNewPeerQuestion = "@atom+@atom+@str";

// Without CAF's own messages, the names are those of RegisterMessageTypes, without the package.
constexpr Row kRows[] = {
    // Membership.
    {"JoinRequest+NodeController", kNode, Sender::kNamed},
    {"JoinRequest+Router", kGateway, Sender::kNamed},
    {"JoinRequest+Router+Front", kGateway, Sender::kNamed},
    {"JoinReply", kManager},
    {"Heartbeat", kMembers, Sender::kNamed},
    {"HeartbeatReply", kManager},
    {"LeaveRequest", kMembers, Sender::kNamed},
    {"ClusterUpdate", kManager},
    // Administration. Which of it: CheckAdmin.
    {"AdminRequest", kReaders, Sender::kNamed},
    {"AdminReply", {Role::kManager, Role::kGateway, Role::kNode}},
    {"UploadChunk", kOperators},
    {"UploadReply", kManager},
    // The manager to nodes, and their answers.
    {"AdoptModel", kManager},
    {"AdoptModelReply", kNode},
    {"DisownModel", kManager},
    {"GiveUpStates", kManager},
    {"GivenUpStates", kNode},
    {"TakeOverStates", kManager},
    {"TakenOverStates", kNode},
    {"ForgetStates", kManager},
    {"StateReplicas", kManager},
    {"ReplicasInStep", kNode},
    {"DrainNode", kManager},
    {"DrainReply", kNode},
    {"DescribeNode", kManager},
    {"NodeDescription", kNode},
    {"DescribeGateway", kManager},
    {"GatewayDescription", kGateway},
    {"RunTrial", kManager},
    {"TrialEnded", kNode},
    {"StopTrial", kManager},
    {"KillGpu", kManager},
    {"InjectFault", kManager},
    // Models, from the manager and from other nodes; states, from the node that gave them up or is their home.
    {"FetchObject", kNode},
    {"FetchImage", kNode},
    {"CopyImage", kNode},
    {"CopiedImage", kNode},
    {"FetchReply", {Role::kManager, Role::kNode}},
    {"ReleaseFetched", kNode},
    {"LocateModel", kNode},
    {"ModelPlaces", kManager},
    {"DigestRange", kNode},
    {"RangeDigest", kManager},
    // Requests: of shells to gateways, of gateways to nodes.
    {"InferRequest", kAdmin},
    {"InferReply", kGateway},
    {"ReleaseOutputs", kAdmin},
    {"ExportTensors", kGateway},
    {"ExportedTensors", kNode},
    {"SubmitRequest", kGateway},
    {"SubmitReply", kNode},
    {"CancelSubmit", kGateway},
    {"ReleaseRequest", kGateway},
    {"RouterHello+CreditSink", kGateway},
    {"CreditGrant", kNode},
    // Workflow runs.
    {"StartRun+WorkflowRun", kGateway},
    {"StartRun", kGateway},
    {"CommitStep", kGateway},
    {"FinishRun", kGateway},
    {"RunReply", kManager},
    {"StoreBlob", kGateway},
    {"StoreBlobReply", kManager},
    {"ContinueRun", kManager},
    {"RunTaken", kManager},
    {"CancelInfer", kManager},
    // CAF's own: why a request failed; what it asks each new peer, and the answer.
    {"@error", kEveryRole},
    {kNewPeerQuestion, kEveryRole},
    {"@atom+@str+@strong_actor_ptr+@str", kEveryRole},
};

// "JoinRequest+Router" as it travels.
std::string FullName(std::string_view types) {
  if (types.front() == '@') return std::string(types);
  std::string full = "troupe.proto.";
  for (const char one : types) {
    full += one;
    if (one == '+') full += "troupe.";
  }
  return full;
}

struct Hash {
  using is_transparent = void;
  std::size_t operator()(std::string_view text) const { return std::hash<std::string_view>()(text); }
};
using Table = std::unordered_map<std::string, const Row*, Hash, std::equal_to<>>;

const Table& Rows() {
  static const Table* const kTable = [] {
    auto* table = new Table;
    for (const auto& row : kRows) table->emplace(FullName(row.types), &row);
    return table;
  }();
  return *kTable;
}

struct AdminRow {
  proto::AdminRequest::RequestCase what;
  std::string_view purpose;
  Roles from;
};
using Case = proto::AdminRequest;
constexpr AdminRow kAdminRows[] = {
    {Case::kDeploy, "deploy a function", kOperators},
    {Case::kRemove, "remove a function", kOperators},
    {Case::kLoad, "load or unload a function", kOperators},
    {Case::kSplitFunction, "share requests among the versions of a function", kOperators},
    {Case::kUpdateFunction, "change how a function shares its GPUs", kOperators},
    {Case::kMoveFunction, "move a function's state", kOperators},
    {Case::kProfileFunction, "profile a function", kAdmin},
    {Case::kImportProfile, "import a profile", kAdmin},
    {Case::kRemoveProfile, "remove a profile", kAdmin},
    {Case::kCancelProfiling, "cancel a profile's experiment", kAdmin},
    {Case::kShowProfile, "look at a profile", kReaders},
    {Case::kShowScaling, "look at how a function is scaled", kReaders},
    {Case::kSubmitWorkflow, "submit a workflow", kOperators},
    {Case::kRemoveWorkflow, "remove a workflow", kOperators},
    {Case::kCancelRun, "cancel a run", kOperators},
    {Case::kDrain, "drain a node", kAdmin},
    {Case::kKillGpu, "end a GPU worker", kAdmin},
    {Case::kInjectFault, "inject a fault", kAdmin},
    {Case::kCreateKey, "make an API key", kAdmin},
    {Case::kRevokeKey, "revoke an API key", kAdmin},
    {Case::kListKeys, "list the API keys", kReaders},
    {Case::kListFunctions, "list the functions", kReaders},
    {Case::kShowFunction, "look at a function", kReaders},
    {Case::kClusterStatus, "ask for the cluster's status", kReaders},
    {Case::kListEvents, "list events", kReaders},
    {Case::kListGpus, "list the GPUs", kReaders},
    {Case::kListWorkflows, "list the workflows", kReaders},
    {Case::kShowWorkflow, "look at a workflow", kReaders},
    {Case::kReadWorkflow, "have a workflow read", kReaders},
    {Case::kListRuns, "list the runs", kReaders},
    {Case::kShowRun, "look at a run", kReaders},
    {Case::kShowImport, "look at an import", kReaders},
    {Case::kShowSlo, "look at the SLOs", kReaders},
    {Case::kExplainRequest, "look at requests", kReaders},
    {Case::kListUsage, "look at what was used", kReaders},
};

// As RequireRole, for a peer that may have no certificate.
absl::Status Require(const Peer& peer, Roles wanted, std::string_view purpose) {
  if (peer.roles.HasAny(wanted)) return absl::OkStatus();
  if (peer.name.empty())
    return absl::PermissionDeniedError(absl::StrCat(peer.ToString(), " may not ", std::string(purpose)));
  return security::RequireRole({peer.roles, peer.name, peer.serial}, wanted, purpose);
}

}  // namespace

absl::Status CheckMessage(std::string_view types, Roles from, bool has_sender) {
  const auto it = Rows().find(types);
  if (it == Rows().end())
    return absl::InvalidArgumentError(absl::StrCat(
        "a message of the types '", std::string(types.substr(0, 120)), "' is not sent between processes"));
  const Row& row = *it->second;
  if (!from.HasAny(row.from))
    return absl::PermissionDeniedError(absl::StrCat("a message ", std::string(row.types), " comes from ",
                                                    row.from.ToString(), ", and the peer is ",
                                                    from.ToString()));
  if (row.sender == Sender::kNamed && !has_sender)
    return absl::InvalidArgumentError(absl::StrCat("a message ", std::string(row.types), " names no sender"));
  return absl::OkStatus();
}

bool IsForNamedActor(std::string_view types) {
  return types == kNewPeerQuestion;
}

absl::Status CheckAdmin(const proto::AdminRequest& request, const Peer& peer) {
  const auto* row = std::find_if(std::begin(kAdminRows), std::end(kAdminRows),
                                 [&](const AdminRow& one) { return one.what == request.request_case(); });
  if (row == std::end(kAdminRows))
    return absl::InvalidArgumentError("the request is of a kind that this version does not know");
  if (peer.roles.HasAny(row->from)) return absl::OkStatus();
  // A person is told what a person may have.
  return Require(peer, row->from == kReaders ? Roles{Role::kAdmin, Role::kReader} : kAdmin, row->purpose);
}

absl::Status CheckMemberName(const Peer& peer, const std::string& name) {
  if (peer.name.empty() || peer.name == name) return absl::OkStatus();
  // A daemon with both roles has two members.
  const bool both = peer.roles.Has(Role::kNode) && peer.roles.Has(Role::kGateway);
  if (both && name == absl::StrCat(peer.name, "-gateway")) return absl::OkStatus();
  return absl::PermissionDeniedError(absl::StrCat(
      "certificate ", peer.ToString(), " may not be the member '", name, "': start the daemon with --name ",
      peer.name, ", or issue a certificate of its own with 'troupe ca issue --role ROLE ", name, "'"));
}

absl::Status CheckMember(const Peer& peer, const std::string& name, proto::MemberKind kind) {
  const bool node = kind == proto::MEMBER_NODE;
  TROUPE_RETURN_IF_ERROR(
      Require(peer, node ? kNode : kGateway, node ? "join as a node" : "join as a gateway"));
  return CheckMemberName(peer, name);
}

absl::Status CheckInterface(const std::set<std::string>& interface, const Peer& peer) {
  for (const PeerKind& kind : kPeerKinds)
    if (Takes(interface, kind.mark)) TROUPE_RETURN_IF_ERROR(Require(peer, kind.roles, kind.purpose));
  return absl::OkStatus();
}

}  // namespace troupe::actors
