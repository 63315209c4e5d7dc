// Makes any protobuf message a CAF message: argument-dependent look-up finds this `inspect` through the base
// class. In one process nothing is serialised (a moved payload keeps its address); between processes one
// string travels. Every message that may cross a process is also listed in message_types.cpp; an unlisted one
// fails at run time.
#pragma once

#include <google/protobuf/message_lite.h>

#include <caf/error.hpp>
#include <caf/sec.hpp>
#include <string>
#include <type_traits>

namespace google::protobuf {

template <class Inspector, class Message>
requires std::is_base_of_v<MessageLite, Message>
typename Inspector::result_type inspect(Inspector& f, Message& message) {
  if constexpr (Inspector::reads_state) {
    std::string wire = message.SerializeAsString();
    return f(wire);
  } else {
    std::string wire;
    if (auto error = f(wire)) return error;
    if (!message.ParseFromString(wire))
      return caf::make_error(caf::sec::invalid_argument, message.GetTypeName());
    return caf::none;
  }
}

}  // namespace google::protobuf
