// OPEN PROMISES: the answers that an actor owes, by the numbers under which the state machine behind it knows the
// questions. Owned by the actor; a promise holds the actor, which clears them when it ends.
//
//   a question:  opened -> delivered
//                opened -> dropped    the one who asked has gone, and is told nothing
//                opened -> cleared    the actor ends: each caller hears, in the order of the questions, that no answer comes
#pragma once

#include <caf/typed_response_promise.hpp>
#include <cstdint>
#include <map>
#include <tuple>
#include <utility>

namespace troupe::actors {

template <class... Replies>
class OpenPromises {
 public:
  // The number of the question, from 1.
  template <class Reply>
  std::uint64_t Open(caf::typed_response_promise<Reply> promise) {
    Of<Reply>().emplace(++last_, std::move(promise));
    return last_;
  }
  // Nothing happens when the question is not open any more.
  template <class Reply>
  void Deliver(std::uint64_t question, Reply reply) {
    auto promise = Of<Reply>().extract(question);
    if (!promise.empty()) promise.mapped().deliver(std::move(reply));
  }
  template <class Reply>
  void Drop(std::uint64_t question) {
    Of<Reply>().erase(question);
  }
  void Clear() { promises_ = {}; }

 private:
  template <class Reply>
  using Promises = std::map<std::uint64_t, caf::typed_response_promise<Reply>>;
  template <class Reply>
  Promises<Reply>& Of() {
    return std::get<Promises<Reply>>(promises_);
  }

  std::tuple<Promises<Replies>...> promises_;
  std::uint64_t last_ = 0;
};

}  // namespace troupe::actors
