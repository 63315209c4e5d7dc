#include "sim/workloads/sequence_clients.hpp"

#include <utility>

#include "absl/strings/str_cat.h"

namespace troupe::sim {

namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr Duration kBetweenChats = milliseconds(300);  // chats that begin
constexpr Duration kThinks = milliseconds(80);         // a client, before its next request
constexpr Duration kPatience = seconds(2);
constexpr std::uint32_t kTries = 6;

}  // namespace

void SequenceClients::Loop() {
  load_.cluster().agenda().In(kBetweenChats, [this] {
    if (load_.Over()) return;
    Ask({.function = function_.empty()
                         ? absl::StrCat(ClientLoad::kStateful, random_.Below(load_.plan().stateful))
                         : function_,
         .id = absl::StrCat("chat-", ++chats_),
         .left = 2 + random_.Below(6),
         .tries = kTries});
    Loop();
  });
}

void SequenceClients::Ask(Chat chat) {
  if (load_.Over()) return;
  const auto gateways = load_.cluster().shape().GatewayNames();
  RequestRecord record;
  record.gateway = gateways[random_.Below(gateways.size())];
  record.function = chat.function;
  record.timeout = kPatience;
  record.sequence = chat.id;
  record.starts = !chat.begun;
  record.ends = chat.left == 1;
  requests_.SendThen(std::move(record), [this, chat = std::move(chat)](const RequestRecord& answered) {
    Answered(chat, answered.code);
  });
}

void SequenceClients::Answered(Chat chat, absl::StatusCode code) {
  const bool refused = code == absl::StatusCode::kUnavailable || code == absl::StatusCode::kResourceExhausted;
  if (code == absl::StatusCode::kOk) {
    chat.begun = true;
    chat.tries = kTries;
    if (--chat.left == 0) return;
  } else if (--chat.tries == 0 || code == absl::StatusCode::kInvalidArgument || (!chat.begun && !refused)) {
    return;
  }
  // Where its last request may have counted, the sequence may have ended.
  if (chat.left == 1 && code != absl::StatusCode::kOk && !refused) return;
  load_.cluster().agenda().In(kThinks, [this, chat = std::move(chat)] { Ask(chat); });
}

}  // namespace troupe::sim
