// GATEWAY SERVICE: the HTTP front's InferenceService over the actors. Calls go through the front client, and
// descriptions come from the newest view. Thread-safe. It outlives the HTTP server and is destroyed before
// the actor system.
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "actors/client/manager_client.hpp"
#include "actors/gateway/front.hpp"
#include "actors/gateway/function_statistics.hpp"
#include "actors/gateway/servable_models.hpp"
#include "actors/gateway/view_cell.hpp"
#include "gateway/inference_service.hpp"
#include "transport/tensor_channel.hpp"

namespace troupe::actors {

class GatewayService final : public gateway::InferenceService {
 public:
  struct Parts {
    std::shared_ptr<FrontClient> front;
    std::shared_ptr<ViewCell> view;
    std::shared_ptr<ServableModels> servable;
    std::shared_ptr<FunctionStatistics> statistics;
    ManagerClient* manager = nullptr;             // outlives it
    transport::TensorChannel* channel = nullptr;  // outlives it
  };
  explicit GatewayService(Parts parts) : parts_(std::move(parts)) {}

  absl::StatusOr<gateway::InputBuffer> ReserveInput(Bytes size) override;
  gateway::CallId Infer(gateway::InferCall call, std::function<void(gateway::InferResult)> done) override;
  void Cancel(gateway::CallId call) override;
  absl::StatusOr<std::shared_ptr<const gateway::FunctionInfo>> Find(std::string_view name,
                                                                    std::string_view version) override;
  std::vector<std::shared_ptr<const gateway::FunctionInfo>> List() override;
  absl::StatusOr<gateway::FunctionStatistics> Statistics(std::string_view name,
                                                         std::string_view version) override;
  bool Live() override { return true; }
  bool Ready() override;
  void Load(const proto::Caller& caller, std::string_view name, std::map<std::string, std::string> parameters,
            std::function<void(absl::Status)> done) override;
  void Unload(const proto::Caller& caller, std::string_view name,
              std::function<void(absl::Status)> done) override;

 private:
  // Why a request for it would have to wait now; "": it would not.
  [[nodiscard]] std::string WhyNotReady(const proto::FunctionRecord& function) const;
  void SetLoaded(const proto::Caller& caller, std::string_view name, bool loaded,
                 std::function<void(absl::Status)> done);
  std::shared_ptr<const gateway::FunctionInfo> Describe(const cluster::ClusterView& view,
                                                        const std::string& name,
                                                        const std::string& version) const;

  const Parts parts_;
  std::atomic<std::uint64_t> next_call_{1};
};

}  // namespace troupe::actors
