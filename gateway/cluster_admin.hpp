// CLUSTER ADMIN: what the management paths (/v2/troupe/...) ask of the cluster. Implemented in actors/ over
// the admin client; faked in tests. Same rules as InferenceService: any thread, never waits, `done` exactly
// once on any thread. Answers are the administration messages of proto/admin.proto; the front writes them as
// protobuf's JSON.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "base/units.hpp"
#include "proto/admin.pb.h"

namespace troupe::gateway {

template <typename T>
using AdminDone = std::function<void(absl::StatusOr<T>)>;

// An answer, and what the cluster says beside it: what is still to come, and what does not fit any more. Clients see it as
// `message`; most often there is none.
template <typename T>
struct Remarked {
  T answer{};
  std::string message{};
};

struct Deployment {
  std::string name;
  std::string version;  // empty: the next
  std::string tenant;
  std::string isolation;  // shared, tenant, workflow, function; empty: as nodes are configured
  proto::Precision precision = proto::PRECISION_FP32;
  proto::GpuSharing sharing;
  Duration run_limit = Duration::zero();  // of one run on a GPU; zero: learned
  Duration deadline = Duration::zero();   // zero: the cluster's default
  double percentile = 0;                  // zero: the cluster's default
  std::vector<proto::StateTensor> state;  // what stays on the device from run to run
  std::uint32_t state_replicas = 0;       // other nodes that are to have copies of it
  Bytes stage_memory;                     // weights of one stage at most; zero: as GPUs need it
  std::string client;                     // whose turn its import is (ClientOf)
  proto::Caller caller;                   // for the audit
  std::string onnx;                       // the file's bytes
  std::string digest;                     // of a file that was uploaded before; empty: the bytes are here
};

// Whose uploads and imports a caller's are: its name's, else its address's.
[[nodiscard]] inline std::string ClientOf(const proto::Caller& caller) {
  return caller.name().empty() ? caller.address() : caller.name();
}

// One part of a file.
struct UploadPart {
  std::string digest;  // SHA-256 of the whole
  std::string client;
  std::uint64_t offset = 0;  // bytes
  bool complete = false;     // the file ends with it
  std::string bytes;
};

// The caller has gone. Never empty; nothing happens when what it ends is over.
using AdminGiveUp = std::function<void()>;

class ClusterAdmin {
 public:
  virtual ~ClusterAdmin() = default;

  // Done when the function can be called. kInvalidArgument names what is wrong with the file. Given up before
  // the whole file was handed on, nothing is deployed, and the file's bytes are let go of: `done` hears
  // kCancelled.
  virtual AdminGiveUp Deploy(Deployment deployment, AdminDone<Remarked<proto::FunctionStatus>> done) = 0;
  // A file that comes in parts. A refusal is an answer with a code, and with how much is there: kOutOfRange when the part
  // does not begin there, kDataLoss when the bytes are not those of the digest, kNotFound when nothing is there. Given up,
  // the part's bytes are let go of soon, and what has arrived of them stays.
  virtual AdminGiveUp AppendUpload(UploadPart part, AdminDone<proto::UploadReply> done) = 0;
  virtual void ShowUpload(const std::string& digest, const std::string& client,
                          AdminDone<proto::UploadReply> done) = 0;
  virtual void DropUpload(const std::string& digest, const std::string& client,
                          AdminDone<proto::UploadReply> done) = 0;
  // `version` empty: the newest.
  // `caller`, here and below: the caller that the audit line names.
  virtual void Remove(const proto::Caller& caller, std::string_view name, std::string_view version,
                      std::function<void(absl::Status)> done) = 0;
  virtual void ListFunctions(AdminDone<std::vector<proto::FunctionStatus>> done) = 0;
  // Every version of one function; kNotFound when there is none.
  virtual void ShowFunction(std::string_view name, AdminDone<std::vector<proto::FunctionStatus>> done) = 0;
  // Changes which versions of a function get the requests that name none; `done` hears of all its versions.
  virtual void Split(const proto::Caller& caller, proto::SplitFunction wish,
                     AdminDone<std::vector<proto::FunctionStatus>> done) = 0;
  // Changes how a version shares its GPUs; `done` hears of it as it is then.
  virtual void Update(const proto::Caller& caller, proto::UpdateFunction wish,
                      AdminDone<std::vector<proto::FunctionStatus>> done) = 0;

  // The imports that wait or run: of the ONNX file with this SHA-256 (kNotFound when there is none), or of
  // all when empty.
  virtual void ShowImports(std::string_view digest, AdminDone<std::vector<proto::ImportStatus>> done) = 0;

  // `yaml` is a workflow file; each error names its line.
  virtual void SubmitWorkflow(const proto::Caller& caller, std::string yaml,
                              AdminDone<Remarked<proto::WorkflowRecord>> done) = 0;
  virtual void ListWorkflows(AdminDone<std::vector<proto::WorkflowRecord>> done) = 0;
  virtual void RemoveWorkflow(const proto::Caller& caller, std::string_view name,
                              std::function<void(absl::Status)> done) = 0;
  // Runs of one workflow, or of all (empty), without their tensors.
  virtual void ListRuns(std::string_view workflow, AdminDone<std::vector<proto::RunRecord>> done) = 0;
  // kNotFound when there is none.
  virtual void ShowRun(std::string_view run, AdminDone<proto::RunRecord> done) = 0;
  virtual void CancelRun(const proto::Caller& caller, std::string_view run,
                         std::function<void(absl::Status)> done) = 0;

  virtual void Status(AdminDone<proto::ClusterStatusReply> done) = 0;
};

}  // namespace troupe::gateway
