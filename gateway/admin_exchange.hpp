// The management paths, /v2/troupe/...:
//   POST functions/NAME[?version=V&tenant=T&isolation=tenant&precision=fp16&sm_partition=24&quota_limit=80
//          &run_limit_ms=5000&deadline_ms=50&percentile=98&state_replicas=1&stage_memory=8GiB]   body: the ONNX file
//   GET    functions | functions/NAME          DELETE functions/NAME[?version=V]
//   POST   functions/NAME/canary?version=V&weight=P | functions/NAME/promote[?version=V] | functions/NAME/rollback
//   POST   functions/NAME/sharing?[version=V&]sm_partition=24&quota_request=30&quota_limit=80&gpu_mem=2GiB
//          &max_instances=4&max_batch=8
//   POST   workflows   body: the YAML file       GET    workflows    DELETE workflows/NAME
//   POST   functions/NAME?digest=SHA256   no body: the file was uploaded before
//   HEAD, GET, PATCH, DELETE   uploads/SHA256   (upload_exchange.hpp)
//   GET    imports | imports/SHA256           GET    cluster
// Answers are the messages of proto/admin.proto as JSON, with the field names of the .proto files.
#pragma once

#include <memory>
#include <string_view>

#include "gateway/cluster_admin.hpp"
#include "gateway/http_message.hpp"
#include "gateway/route.hpp"

namespace troupe::gateway {

[[nodiscard]] std::shared_ptr<HttpExchange> MakeAdminExchange(const Route& route, const HttpRequestHead& head,
                                                              const proto::Caller& caller, Bytes max_model,
                                                              ClusterAdmin& admin);

}  // namespace troupe::gateway
