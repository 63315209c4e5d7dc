// Answers a promise; a statement, where CAF's own deliver returns something.
#pragma once

#include <utility>

namespace troupe::actors {

template <class Promise, class Reply>
void Deliver(Promise& promise, Reply reply) {
  promise.deliver(std::move(reply));
}

}  // namespace troupe::actors
