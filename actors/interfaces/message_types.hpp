// The one list of messages that cross a process boundary between actors.
#pragma once

#include <caf/actor_system_config.hpp>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace google::protobuf {
class Message;
}

namespace troupe::actors {

// Registers every message and every actor interface of the list with CAF, under its protobuf full name.
void RegisterMessageTypes(caf::actor_system_config& config);

// A default instance of each listed message, for the test that round-trips them all.
[[nodiscard]] std::vector<std::unique_ptr<google::protobuf::Message>> ListedMessages();

}  // namespace troupe::actors
