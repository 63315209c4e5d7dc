// STREAM ENDPOINT: bytes of slices between hosts over TCP, with mutual TLS where the daemon has certificates:
// only daemons of the cluster are served then, and what travels is encrypted. Without certificates a reader
// has to know the endpoint's token, and nothing is encrypted.
#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "security/credentials.hpp"
#include "transport/remote_endpoint.hpp"
#include "transport/socket_refusals.hpp"

namespace troupe::transport {

class StreamEndpoint {
 public:
  struct Options {
    std::string bind = "127.0.0.1:0";                      // port 0: the system chooses
    std::size_t pending = 256;                             // fetches at once; ResourceExhausted beyond
    std::shared_ptr<SocketRefusals> refusals{};            // null: counted, and not shown
    std::shared_ptr<security::Credentials> credentials{};  // null: no TLS
  };

  static absl::StatusOr<std::unique_ptr<RemoteEndpoint>> Start(Options options, SliceSource source);
};

}  // namespace troupe::transport
