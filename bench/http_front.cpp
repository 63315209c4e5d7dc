// The HTTP front over a service that answers at once with its inputs. It shows what the front alone costs,
// beside a web server's static file and the whole system. Its one function "noop" takes FP32 [-1] and returns
// the same.
//   http_front   prints "port N" and serves until its standard input ends.
#include <prometheus/registry.h>

#include <cstdio>
#include <memory>
#include <string>

#include "gateway/gateway_server.hpp"

namespace troupe::gateway {
namespace {

class NoopService final : public InferenceService {
 public:
  NoopService() {
    auto info = std::make_shared<FunctionInfo>();
    info->name = "noop";
    info->version = "1";
    info->versions = {"1"};
    proto::TensorSpec spec;
    spec.set_name("x");
    spec.set_type(proto::FP32);
    spec.add_shape(-1);
    info->inputs = {spec};
    spec.set_name("y");
    info->outputs = {spec};
    info->ready = true;
    info_ = std::move(info);
  }

  absl::StatusOr<InputBuffer> ReserveInput(Bytes size) override {
    return InputBuffer::Inline(std::string(size.count(), '\0'));
  }
  CallId Infer(InferCall call, std::function<void(InferResult)> done) override {
    InferResult result;
    result.version = "1";
    InferInput& input = call.inputs.front();
    input.spec.set_name("y");
    const std::shared_ptr<InputPlace> keeper = input.data.TakePlace();
    result.outputs.push_back({std::move(input.spec), OutputBuffer(keeper->bytes(), keeper)});
    done(std::move(result));
    return CallId{1};
  }
  void Cancel(CallId) override {}
  absl::StatusOr<std::shared_ptr<const FunctionInfo>> Find(std::string_view name, std::string_view) override {
    if (name == info_->name) return info_;
    return absl::NotFoundError("there is noop only");
  }
  std::vector<std::shared_ptr<const FunctionInfo>> List() override { return {info_}; }
  absl::StatusOr<FunctionStatistics> Statistics(std::string_view, std::string_view) override {
    return FunctionStatistics();
  }
  bool Live() override { return true; }
  bool Ready() override { return true; }
  void Load(const proto::Caller&, std::string_view, std::map<std::string, std::string>,
            std::function<void(absl::Status)> done) override {
    done(absl::OkStatus());
  }
  void Unload(const proto::Caller&, std::string_view, std::function<void(absl::Status)> done) override {
    done(absl::OkStatus());
  }

 private:
  std::shared_ptr<const FunctionInfo> info_;
};

}  // namespace
}  // namespace troupe::gateway

int main() {
  troupe::gateway::NoopService service;
  auto server = troupe::gateway::GatewayServer::Start(troupe::gateway::GatewayOptions(), service, nullptr,
                                                      std::make_shared<prometheus::Registry>());
  if (!server.ok()) {
    std::fprintf(stderr, "http_front: %s\n", server.status().ToString().c_str());
    return 2;
  }
  std::printf("port %d\n", (*server)->port());
  std::fflush(stdout);
  while (std::getchar() != EOF) {
  }
  (*server)->Stop(std::chrono::seconds(1));
  return 0;
}
