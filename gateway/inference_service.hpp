// INFERENCE SERVICE: what the HTTP front asks of the cluster to serve functions. Implemented in actors/ over
// the router; faked in tests. The front owns a reference; the service outlives it. Threads: every member may
// be called from any thread and returns without waiting. `done` callbacks run exactly once, on any thread
// (also inside the call itself), and must not block.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/units.hpp"
#include "gateway/tensor_buffer.hpp"
#include "proto/access.pb.h"
#include "proto/tensor.pb.h"

namespace troupe::gateway {

// Names one accepted call of Infer. 0 is never given out.
enum class CallId : std::uint64_t {};

struct InferInput {
  proto::TensorSpec spec;  // concrete shape
  InputBuffer data;        // exactly as many bytes as `spec` says
};

// A sequence of requests (proto/request.proto).
struct Sequence {
  std::string id{};  // empty: none
  bool start = false;
  bool end = false;
  friend bool operator==(const Sequence&, const Sequence&) = default;
};

struct InferCall {
  std::string function;
  std::string version;     // empty: the newest
  std::string request_id;  // the client's own, for logs
  // Of a workflow: names its run, so that a client that sends it again is told how that run ended.
  std::string run_key;
  std::vector<InferInput> inputs;
  std::vector<std::string> outputs;     // names asked for; empty: all
  Duration timeout = Duration::zero();  // expiry from now; zero: the service's default
  std::uint32_t priority = 0;           // smaller is more urgent; 0: default
  Sequence sequence{};
};

struct InferOutput {
  proto::TensorSpec spec;  // concrete shape
  OutputBuffer data;
};

// Status codes the front tells apart: kAlreadyExists (the run key was used for something else), kNotFound (no
// such function, or removed while the call waited), kInvalidArgument, kResourceExhausted and kUnavailable
// (try again after `retry_after`), kDeadlineExceeded (the timeout passed), kCancelled, kUnimplemented,
// kInternal; MarkDiskFull (base/status.hpp) for a full disk.
struct InferResult {
  absl::Status status;
  Duration retry_after = Duration::zero();  // zero: the front's default
  std::string version;                      // that served the call
  std::vector<InferOutput> outputs;         // in the order asked for, or the function's own
};

inline constexpr std::string_view kWorkflowPlatform = "troupe_workflow";

// Snapshot of what a function is. Immutable: a change makes a new snapshot.
struct FunctionInfo {
  std::string name;
  std::string version;                // the one described
  std::vector<std::string> versions;  // all that may be asked for, ascending
  std::string platform = "onnx_onnxv1";
  std::string tenant;
  std::vector<proto::TensorSpec> inputs;  // -1: any size
  std::vector<proto::TensorSpec> outputs;
  bool ready = false;
  std::string reason;  // why not ready; empty when ready
  Duration deadline = Duration::zero();
  double percentile = 0;
};

// Number of requests, and the sum of the time they spent.
struct CountedTime {
  std::uint64_t count = 0;
  Duration total = Duration::zero();
};

// Runs that answered the same number of requests.
struct BatchStatistics {
  CountedTime compute_input;
  CountedTime compute_infer;
  CountedTime compute_output;
};

struct FunctionStatistics {
  std::int64_t last_inference_unix_ms = 0;
  std::uint64_t inference_count = 0;  // requests answered well
  std::uint64_t execution_count = 0;  // runs on a GPU: fewer where requests were joined
  CountedTime success;
  CountedTime fail;
  CountedTime queue;
  CountedTime compute_input;  // copying inputs and swapping in
  CountedTime compute_infer;
  CountedTime compute_output;
  std::map<std::uint32_t, BatchStatistics> batches;  // by the number of requests
};

class InferenceService {
 public:
  virtual ~InferenceService() = default;

  // A place for one input of `size` bytes. kResourceExhausted: no room now, try again.
  virtual absl::StatusOr<InputBuffer> ReserveInput(Bytes size) = 0;

  // Runs a function. Every refusal also comes through `done`.
  virtual CallId Infer(InferCall call, std::function<void(InferResult)> done) = 0;
  // The caller has gone: drops the call wherever it waits. `done` still runs (kCancelled, or the result if it
  // was under way). Nothing happens when the call is over already.
  virtual void Cancel(CallId call) = 0;

  // kNotFound, with the names that come near where the service knows any. `version` empty: the newest.
  virtual absl::StatusOr<std::shared_ptr<const FunctionInfo>> Find(std::string_view name,
                                                                   std::string_view version) = 0;
  // Every version of every function and workflow, by name.
  virtual std::vector<std::shared_ptr<const FunctionInfo>> List() = 0;
  // Of one version on this gateway since it started.
  virtual absl::StatusOr<FunctionStatistics> Statistics(std::string_view name, std::string_view version) = 0;

  // The process serves requests at all.
  virtual bool Live() = 0;
  // The cluster can take requests: a manager is known and at least one node grants credits.
  virtual bool Ready() = 0;

  // Starts (prepares) or stops serving a function; the registry keeps it. `parameters` as the client sent
  // them.
  virtual void Load(const proto::Caller& caller, std::string_view name,
                    std::map<std::string, std::string> parameters,
                    std::function<void(absl::Status)> done) = 0;
  virtual void Unload(const proto::Caller& caller, std::string_view name,
                      std::function<void(absl::Status)> done) = 0;
};

}  // namespace troupe::gateway
