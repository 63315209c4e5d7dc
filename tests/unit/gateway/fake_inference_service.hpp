// An InferenceService for tests: it answers every call with the call's inputs as outputs, at once or when it
// is told to.
#pragma once

#include <condition_variable>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "gateway/inference_service.hpp"

namespace troupe::gateway {

// The fake is thread-safe.
class FakeInferenceService final : public InferenceService {
 public:
  ~FakeInferenceService() override;

  // A function whose outputs are its inputs: input i comes back as output i.
  void AddEcho(const std::string& name, std::vector<proto::TensorSpec> inputs,
               std::vector<std::string> outputs);
  void SetReady(const std::string& name, bool ready);
  void Remove(const std::string& name);

  // Calls wait until Release or Cancel.
  void Hold(bool hold);
  void ReleaseAll();
  // The status of the calls to come; OK: each is answered with its inputs.
  void AnswerWith(absl::Status status, Duration retry_after = Duration::zero());
  void RefusePlaces(bool refuse);
  // Calls are answered from a thread of the fake instead of inside Infer.
  void AnswerElsewhere(bool elsewhere);
  void SetLife(bool live, bool ready);

  // Blocks until so many calls wait, or have been cancelled.
  void WaitForHeld(std::size_t count);
  void WaitForCancelled(std::size_t count);
  // The request of the last call.
  Duration last_timeout();
  std::uint32_t last_priority();
  std::string last_version();
  Sequence last_sequence();
  std::size_t calls();
  // The number of places that were reserved and not given back.
  std::size_t open_places();
  // Returns when each was given back: the front gives back what a request had when its answer is out, and this fake when its own
  // thread is done with a call.
  void WaitForPlaces();
  // The number of output buffers that were handed out and not given back.
  std::size_t open_outputs();
  std::map<std::string, std::string> load_parameters();

  absl::StatusOr<InputBuffer> ReserveInput(Bytes size) override;
  CallId Infer(InferCall call, std::function<void(InferResult)> done) override;
  void Cancel(CallId call) override;
  absl::StatusOr<std::shared_ptr<const FunctionInfo>> Find(std::string_view name,
                                                           std::string_view version) override;
  std::vector<std::shared_ptr<const FunctionInfo>> List() override;
  absl::StatusOr<FunctionStatistics> Statistics(std::string_view name, std::string_view version) override;
  bool Live() override;
  bool Ready() override;
  void Load(const proto::Caller& caller, std::string_view name, std::map<std::string, std::string> parameters,
            std::function<void(absl::Status)> done) override;
  void Unload(const proto::Caller& caller, std::string_view name,
              std::function<void(absl::Status)> done) override;

 private:
  struct Held {
    InferCall call;
    std::function<void(InferResult)> done;
  };
  InferResult Echo(InferCall call);
  void SetLoaded(std::string_view name, bool loaded, std::function<void(absl::Status)> done);

  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::string, std::shared_ptr<const FunctionInfo>, std::less<>> functions_;
  std::map<std::uint64_t, Held> held_;
  std::size_t cancelled_ = 0;
  std::uint64_t next_call_ = 1;
  std::size_t calls_ = 0;
  bool hold_ = false;
  bool refuse_places_ = false;
  bool elsewhere_ = false;
  bool live_ = true;
  bool ready_ = true;
  absl::Status answer_;
  Duration retry_after_ = Duration::zero();
  Duration last_timeout_ = Duration::zero();
  std::uint32_t last_priority_ = 0;
  std::string last_version_;
  Sequence last_sequence_;
  std::map<std::string, std::string> load_parameters_;
  std::shared_ptr<int> places_ = std::make_shared<int>();   // use_count - 1: open places
  std::shared_ptr<int> outputs_ = std::make_shared<int>();  // use_count - 1: open outputs
  std::vector<std::thread> threads_;
};

// "x", FP32, {2, -1}.
proto::TensorSpec Spec(const std::string& name, proto::DataType type, std::vector<std::int64_t> shape);

}  // namespace troupe::gateway
