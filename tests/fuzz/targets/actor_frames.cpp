// Messages between daemons as a peer may send them: the bytes of a listed message (first byte: which), or of
// a whole CAF message, which names its own types.
#include <google/protobuf/message.h>

#include <caf/all.hpp>
#include <caf/binary_deserializer.hpp>
#include <caf/binary_serializer.hpp>
#include <memory>
#include <string>
#include <vector>

#include "actors/interfaces/message_types.hpp"
#include "base/check.hpp"

namespace {

struct World {
  World() {
    troupe::actors::RegisterMessageTypes(config);
    config.set("scheduler.max-threads", 1);
    system = std::make_unique<caf::actor_system>(config);
    for (const auto& message : troupe::actors::ListedMessages()) names.push_back(message->GetTypeName());
  }
  caf::actor_system_config config;
  std::unique_ptr<caf::actor_system> system;
  std::vector<std::string> names;
};

// A message that was read can be written, and is the same when it is read again.
void CheckOneMessage(World& world, const std::string& name, const std::vector<char>& wire) {
  auto value = world.system->types().make_value(name);
  caf::binary_deserializer source(*world.system, wire);
  if (value->load(source)) return;
  std::vector<char> first;
  caf::binary_serializer sink(*world.system, first);
  TROUPE_CHECK(!value->save(sink), "a message that was read can be written");
  auto again = world.system->types().make_value(name);
  caf::binary_deserializer back(*world.system, first);
  TROUPE_CHECK(!again->load(back), "a message that was written can be read");
  const auto* one = static_cast<const google::protobuf::Message*>(value->get());
  const auto* other = static_cast<const google::protobuf::Message*>(again->get());
  TROUPE_CHECK(one->ByteSizeLong() == other->ByteSizeLong(), "a message keeps its size on the wire");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  // Never destroyed: the actor system's threads outlive libFuzzer's main.
  static World& world = *new World();
  if (size == 0) return 0;
  const std::vector<char> wire(data + 1, data + size);
  if (data[0] == 0xFF) {
    caf::message message;
    caf::binary_deserializer source(*world.system, wire);
    (void)source(message);
    return 0;
  }
  CheckOneMessage(world, world.names[data[0] % world.names.size()], wire);
  return 0;
}
