#include "tests/unit/shell/fake_admin_client.hpp"

#include <google/protobuf/text_format.h>

#include "base/check.hpp"
#include "shell/words.hpp"

namespace troupe::shell {

namespace {

class FakeAdminClient final : public actors::AdminClient {
 public:
  explicit FakeAdminClient(FakeCluster& cluster) : cluster_(cluster) {}

  absl::StatusOr<proto::AdminReply> Ask(proto::AdminRequest request, Duration timeout) override {
    cluster_.asked.push_back(request);
    cluster_.timeouts.push_back(timeout);
    auto& answers = cluster_.answers[request.request_case()];
    if (answers.empty()) return proto::AdminReply();
    auto answer = answers.front();
    if (answers.size() > 1) answers.pop_front();
    return answer;
  }
  absl::StatusOr<std::string> Upload(std::shared_ptr<const actors::UploadSource> source,
                                     std::function<void(std::uint64_t)> progress,
                                     Duration /*find*/) override {
    auto bytes = source->Read(0, source->size());
    if (!bytes.ok()) return bytes.status();
    cluster_.uploaded = *std::move(bytes);
    if (progress) progress(cluster_.uploaded.size());
    if (!cluster_.upload_status.ok()) return cluster_.upload_status;
    return "digest-of-the-file";
  }
  absl::StatusOr<proto::InferReply> Infer(proto::InferRequest request, Duration timeout) override {
    cluster_.inferred.push_back(std::move(request));
    cluster_.timeouts.push_back(timeout);
    return cluster_.infer_reply;
  }

 private:
  FakeCluster& cluster_;
};

template <class Message>
Message Read(const std::string& text) {
  Message message;
  TROUPE_CHECK(google::protobuf::TextFormat::ParseFromString(text, &message),
               "the test's message is well-formed");
  return message;
}

}  // namespace

Harness::Harness()
    : session(console,
              [this](actors::AdminClient::Options options)
                  -> absl::StatusOr<std::unique_ptr<actors::AdminClient>> {
                ++cluster.clients;
                cluster.manager = options.manager;
                return std::make_unique<FakeAdminClient>(cluster);
              }) {}

ExitCode Harness::Run(const std::string& line) {
  const auto words = SplitWords(line);
  TROUPE_CHECK(words.ok(), "the test's line is well-formed");
  const auto code = RunProgram(session, *words, manager_variable);
  last_out = console.TakeOut();
  last_err = console.TakeErr();
  return code;
}

proto::FunctionStatus MakeFunction(const std::string& name, const std::string& version) {
  auto status = Read<proto::FunctionStatus>(R"(
    record {
      slo { deadline_ns: 50000000 percentile: 98 }
      onnx_digest: "onnx-digest" model_digest: "model-digest" weights_bytes: 1048576 loaded: true
      inputs { name: "image" type: FP32 shape: -1 shape: 2 }
      outputs { name: "scores" type: FP32 shape: -1 shape: 3 }
    }
    adopted_by: "node-a" resident_on: "node-a/0")");
  status.mutable_record()->mutable_key()->set_name(name);
  status.mutable_record()->mutable_key()->set_version(version);
  return status;
}

proto::AdminReply MakeStatusReply() {
  return Read<proto::AdminReply>(R"(
    status {
      cluster: "c0ffee" revision: 7 functions: 3 workflows: 1 runs: 2
      members { member { name: "node-a" kind: MEMBER_NODE epoch: 1 address: "10.0.0.1:7401" state: MEMBER_ALIVE
                         gpus { index: 0 device: "virtual:0" memory_bytes: 1073741824 state: "ready" }
                         gpus { index: 1 device: "virtual:1" memory_bytes: 1073741824 state: "backoff" } }
                load { queued: 3 running: 2 served: 12345 failed: 1 swaps: 10 hits: 30 busy_share: 0.5 }
                silent_ns: 100000000 }
      members { member { name: "node-b" kind: MEMBER_NODE epoch: 4 address: "10.0.0.2:7401" state: MEMBER_DEAD }
                silent_ns: 5000000000 }
      members { member { name: "gateway-a" kind: MEMBER_GATEWAY epoch: 1 address: "10.0.0.3:7402" http: "10.0.0.3:8000"
                         state: MEMBER_ALIVE }
                load { queued: 40 running: 5 served: 777 } }
    })");
}

proto::AdminReply MakeGpuReply() {
  return Read<proto::AdminReply>(R"(
    gpus { node: "node-a" gpu { index: 0 device: "virtual:0" memory_bytes: 1073741824 state: "ready" }
           worker { device: "virtual:0" memory_bytes: 1073741824 free_bytes: 536870912 largest_free_bytes: 268435456
                    resident { digest: "model-digest" bytes: 1048576 } pid: 4711 runs: 100 swaps: 5 busy_ns: 1000000000
                    link_bytes_per_second: 6e9 generation: "g1" copy_in_bytes: 4194304 copy_out_bytes: 1024
                    memory: "fine-resilient" pool_bytes: 2097152 pool_used_bytes: 1048576 fragmentation: 0.25
                    sms: 132 share_sms: 8 share_sms: 16 share_sms: 24 share_sms: 32 share_sms: 128 share_sms: 132
                    registered_bytes: 1073741824 registering_bytes: 536870912 }
           queued: 2 restarts: 1 busy_share: 0.25 promised_bytes: 65536 link_share: 0.5
           models { digest: "model-digest" functions: "digits" state: "running" bytes: 1048576 runs: 1 replicas: 2 }
           models { digest: "stranger" functions: "other" state: "resident" bytes: 8388608 replicas: 1 waiting: 3
                    idle_ns: 2000000000 }
           runs { function: "digits" age_ns: 5000000 attempt: 2 }
           swaps { digest: "stranger" functions: "other" source: "host" bytes: 8388608 took_ns: 2000000 age_ns: 3000000000
                   evicted: "old" }
           swaps { digest: "model-digest" source: "host" took_ns: 1000 age_ns: 4000000000 code: 8 message: "no room" } }
    gpus { node: "node-a" gpu { index: 1 device: "virtual:1" memory_bytes: 1073741824 state: "unfit" problem: "critical error Xid 79" }
           restarts: 9 }
    regions { node: "node-a" bytes: 4194304 used_bytes: 3145728 loads: 12 drops: 9 models { digest: "a" state: "held" }
              models { digest: "b" state: "on disk" } models { digest: "c" state: "on disk" } }
    alphas { member: "node-a" alpha: 0.5 })");
}

}  // namespace troupe::shell
