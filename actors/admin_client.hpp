// ADMIN CLIENT: the cluster for a program that knows no actors: the shell. Blocking calls over one connection
// to the cluster manager, and to a gateway for inference. Ask: any thread. The others: one thread at a time
// per object.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "actors/upload_source.hpp"
#include "base/units.hpp"
#include "proto/admin.pb.h"
#include "proto/request.pb.h"

namespace troupe::actors {

class AdminClient {
 public:
  struct Options {
    std::string manager = "127.0.0.1:7400";
    Duration timeout = std::chrono::seconds(10);  // of an ordinary request
    // Directory of the caller's certificate (ca.pem, certificate.pem, key.pem, revoked.pem), for an address
    // that is not loopback; empty: the connection is plain.
    std::string tls_dir = {};
    bool insecure_network = false;  // another machine may be asked without one
  };
  // Connects lazily: the first request says UNAVAILABLE, with the address, when no manager is there. Fails
  // when the certificate is missing or cannot be used.
  static absl::StatusOr<std::unique_ptr<AdminClient>> Create(Options options);
  virtual ~AdminClient() = default;

  // The manager's refusals come as the status. A zero timeout means the ordinary one; deployments want
  // minutes.
  virtual absl::StatusOr<proto::AdminReply> Ask(proto::AdminRequest request,
                                                Duration timeout = Duration::zero()) = 0;
  // Sends a file for a deployment; answers its digest (DeployRequest.onnx_digest). What the cluster has of it from an
  // upload that broke off is not sent again. `progress` hears how many bytes are there. `find`: the longest search for a
  // manager at first; zero means that of an ordinary request.
  virtual absl::StatusOr<std::string> Upload(std::shared_ptr<const UploadSource> source,
                                             std::function<void(std::uint64_t)> progress,
                                             Duration find = Duration::zero()) = 0;
  // Runs a function or workflow through a gateway of the cluster. Inputs travel inline (16 MiB at most);
  // outputs come back inline whatever their size.
  virtual absl::StatusOr<proto::InferReply> Infer(proto::InferRequest request, Duration timeout) = 0;
};

}  // namespace troupe::actors
