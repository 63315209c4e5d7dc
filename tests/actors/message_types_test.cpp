#include "actors/interfaces/message_types.hpp"

#include <google/protobuf/message.h>
#include <google/protobuf/util/message_differencer.h>
#include <gtest/gtest.h>

#include <caf/all.hpp>
#include <caf/binary_deserializer.hpp>
#include <caf/binary_serializer.hpp>

#include "actors/core/protobuf_adapter.hpp"
#include "proto/request.pb.h"

namespace troupe::actors {
namespace {

// Fills every singular scalar field, so that an adapter that drops bytes is seen.
void Fill(google::protobuf::Message& message, int depth) {
  const auto* reflection = message.GetReflection();
  const auto* descriptor = message.GetDescriptor();
  for (int i = 0; i < descriptor->field_count(); ++i) {
    const auto* field = descriptor->field(i);
    using Field = google::protobuf::FieldDescriptor;
    if (field->is_repeated()) continue;
    switch (field->cpp_type()) {
      case Field::CPPTYPE_STRING:
        reflection->SetString(&message, field, field->name());
        break;
      case Field::CPPTYPE_INT32:
        reflection->SetInt32(&message, field, 7 + i);
        break;
      case Field::CPPTYPE_INT64:
        reflection->SetInt64(&message, field, -7000000000 - i);
        break;
      case Field::CPPTYPE_UINT32:
        reflection->SetUInt32(&message, field, 70u + static_cast<unsigned>(i));
        break;
      case Field::CPPTYPE_UINT64:
        reflection->SetUInt64(&message, field, 1ull << 63);
        break;
      case Field::CPPTYPE_DOUBLE:
        reflection->SetDouble(&message, field, 0.25 + i);
        break;
      case Field::CPPTYPE_MESSAGE:
        if (depth < 3) Fill(*reflection->MutableMessage(&message, field), depth + 1);
        break;
      default:
        break;
    }
  }
}

class WireTest : public ::testing::Test {
 protected:
  WireTest() {
    RegisterMessageTypes(config_);
    config_.set("scheduler.max-threads", 1);
  }
  caf::actor_system_config config_;
};

TEST_F(WireTest, EveryListedMessageHasAName) {
  EXPECT_GT(ListedMessages().size(), 40u);
  for (const auto& message : ListedMessages())
    EXPECT_EQ(message->GetTypeName().rfind("troupe.proto.", 0), 0u) << message->GetTypeName();
}

TEST_F(WireTest, EveryListedMessageCrossesTheWireUnchanged) {
  caf::actor_system system(config_);
  for (auto& message : ListedMessages()) {
    Fill(*message, 0);
    // The value goes through CAF's own registry: the type's registered name and the adapter's bytes travel.
    auto value = system.types().make_value(message->GetTypeName());
    ASSERT_TRUE(value) << message->GetTypeName() << " is not registered";
    auto* original = static_cast<google::protobuf::Message*>(value->get_mutable());
    original->CopyFrom(*message);
    std::vector<char> wire;
    caf::binary_serializer sink(system, wire);
    ASSERT_FALSE(value->save(sink)) << message->GetTypeName();
    auto back = system.types().make_value(message->GetTypeName());
    caf::binary_deserializer source(system, wire);
    ASSERT_FALSE(back->load(source)) << message->GetTypeName();
    const auto* copy = static_cast<const google::protobuf::Message*>(back->get());
    EXPECT_TRUE(google::protobuf::util::MessageDifferencer::Equals(*message, *copy))
        << message->GetTypeName();
  }
}

TEST_F(WireTest, BytesThatAreNoMessageAreRefused) {
  caf::actor_system system(config_);
  std::vector<char> wire;
  std::string garbage = "\xff\xff\xff\xff\xff";
  caf::binary_serializer sink(system, wire);
  ASSERT_FALSE(sink(garbage));
  proto::SubmitRequest request;
  caf::binary_deserializer source(system, wire);
  EXPECT_TRUE(inspect(source, request));
}

TEST_F(WireTest, InOneProcessAPayloadKeepsItsAddress) {
  caf::actor_system system(config_);
  proto::InferRequest request;
  request.add_inputs()->mutable_data()->set_inlined(std::string(1 << 16, 'x'));
  const void* before = request.inputs(0).data().inlined().data();
  auto message = caf::make_message(std::move(request));
  EXPECT_EQ(message.get_as<proto::InferRequest>(0).inputs(0).data().inlined().data(), before);
}

}  // namespace
}  // namespace troupe::actors
