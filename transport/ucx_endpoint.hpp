// UCX ENDPOINT: bytes of slices between hosts over UCX active messages with rendezvous, for networks with RDMA
// devices. UCX's own types stay in its sources. What travels is not encrypted, and UCX's own protocol over
// TCP does not stand a stranger's bytes: for networks that only the cluster reaches.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "transport/remote_endpoint.hpp"
#include "transport/socket_refusals.hpp"

namespace troupe::transport {

class UcxEndpoint {
 public:
  struct Options {
    std::string bind = "127.0.0.1:0";  // port 0: the system chooses
    std::string transports;            // UCX_TLS; "": UCX decides ("tcp,self" in tests)
    std::size_t pending = 256;         // fetches at once; ResourceExhausted beyond
    // UCX listens for data on every network interface. True: only on that of `bind`, unless the machine has
    // RDMA devices, which this would exclude.
    bool only_interface_of_bind = false;
    std::shared_ptr<SocketRefusals> refusals{};  // null: counted, and not shown
  };

  // Its thread sleeps on UCX's event descriptor.
  static absl::StatusOr<std::unique_ptr<RemoteEndpoint>> Start(Options options, SliceSource source);
};

}  // namespace troupe::transport
