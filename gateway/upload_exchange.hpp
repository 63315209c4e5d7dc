// UPLOAD EXCHANGE: a model's file that comes in parts, /v2/troupe/uploads/SHA256, in the words of the IETF's draft of
// resumable uploads (draft-ietf-httpbis-resumable-upload). The name is the SHA-256 of the whole, so nothing has to be made
// first, and the cluster keeps the parts: any gateway answers, and a restart of one loses nothing.
//   HEAD, GET   Upload-Offset: how much is there; Upload-Complete: ?1 when the file can be deployed
//   PATCH       Upload-Offset: where the body begins; Upload-Complete: ?1 with the last part
//   DELETE      what is not whole is dropped
#pragma once

#include <memory>
#include <string>

#include "gateway/cluster_admin.hpp"
#include "gateway/http_message.hpp"

namespace troupe::gateway {

// The body of one PATCH is held in memory.
inline constexpr Bytes kMaxUploadPart = MiB(64);

[[nodiscard]] std::shared_ptr<HttpExchange> MakeUploadExchange(const std::string& digest,
                                                               const HttpRequestHead& head,
                                                               const proto::Caller& caller,
                                                               ClusterAdmin& admin);

}  // namespace troupe::gateway
