// ADMIN PROMISE: where the answer to a request of the administration goes. The answer to a change passes the
// audit on its way: it is delivered when its line is durable. Copies are one promise; it is answered once.
#pragma once

#include <functional>
#include <memory>
#include <utility>

#include "proto/admin.pb.h"

namespace troupe::actors {

class AdminPromise {
 public:
  using Sink = std::function<void(proto::AdminReply)>;

  explicit AdminPromise(Sink sink) : sink_(std::make_shared<const Sink>(std::move(sink))) {}
  // As CAF's own promises have it, for Deliver.
  void deliver(proto::AdminReply reply) { (*sink_)(std::move(reply)); }

 private:
  std::shared_ptr<const Sink> sink_;
};

}  // namespace troupe::actors
