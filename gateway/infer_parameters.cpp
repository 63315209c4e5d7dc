#include "gateway/infer_parameters.hpp"

#include <algorithm>
#include <utility>

#include "base/status.hpp"
#include "gateway/infer_request.hpp"
#include "gateway/text.hpp"

namespace troupe::gateway {

namespace {

// A place that gives its charge back when it is given back itself.
class ChargedPlace final : public InputPlace {
 public:
  ChargedPlace(std::unique_ptr<InputPlace> place, std::shared_ptr<const void> charge)
      : charge_(std::move(charge)), place_(std::move(place)) {}
  std::span<std::byte> bytes() override { return place_->bytes(); }
  proto::TensorRef ToRef() override { return place_->ToRef(); }

 private:
  std::shared_ptr<const void> charge_;
  std::unique_ptr<InputPlace> place_;  // goes first
};

// False: `key` is none of these.
bool ReadShared(JsonCursor& cursor, std::string_view key, SharedParameters& shared) {
  if (key == kSharedRegion) {
    std::string_view name;
    if (cursor.ReadString(name)) shared.region = name;
    return true;
  }
  if (key != kSharedOffset && key != kSharedSize) return false;
  std::uint64_t number = 0;
  if (cursor.ReadUint(number)) (key == kSharedOffset ? shared.offset : shared.byte_size) = number;
  return true;
}

}  // namespace

absl::Status Once(JsonCursor& cursor, Seen& seen, std::string_view what, std::string_view key,
                  Members members) {
  const auto member = Known(members, key);
  if (member.empty()) return absl::OkStatus();
  if (std::find(seen.begin(), seen.end(), key) != seen.end()) {
    cursor.Fail(Cat(what, " has one \"", key, "\": send it once, the second is"));
    return cursor.status();
  }
  seen.push_back(member);
  return absl::OkStatus();
}

absl::Status ReadInputParameters(JsonCursor& cursor, InputParameters& parameters) {
  Seen seen;
  if (!cursor.BeginObject()) return cursor.status();
  for (std::string_view key; cursor.NextMember(key);) {
    TROUPE_RETURN_IF_ERROR(Once(cursor, seen, "\"parameters\" of an input", key, kInputParameters));
    std::uint64_t size = 0;
    if (cursor.SkipNull()) continue;
    if (key == "binary_data_size") {
      if (cursor.ReadUint(size)) parameters.binary_size = size;
    } else if (!ReadShared(cursor, key, parameters.shared)) {
      cursor.Skip();
    }
  }
  return cursor.status();
}

absl::Status ReadOutputParameters(JsonCursor& cursor, OutputParameters& parameters) {
  Seen seen;
  if (!cursor.BeginObject()) return cursor.status();
  for (std::string_view key; cursor.NextMember(key);) {
    TROUPE_RETURN_IF_ERROR(Once(cursor, seen, "\"parameters\" of an output", key, kOutputParameters));
    bool value = false;
    if (cursor.SkipNull()) continue;
    if (key == "binary_data") {
      if (cursor.ReadBool(value)) parameters.binary = value;
    } else if (key == "classification") {
      return absl::UnimplementedError(
          "the classification extension is not offered; ask for the tensor itself");
    } else if (!ReadShared(cursor, key, parameters.shared)) {
      cursor.Skip();
    }
  }
  return cursor.status();
}

absl::StatusOr<SharedRange> FindRange(const SharedClient* client, const SharedParameters& shared,
                                      std::string_view tensor) {
  if (!shared.region || !shared.byte_size) {
    return absl::InvalidArgumentError(Cat(tensor, " lacks \"", shared.region ? kSharedSize : kSharedRegion,
                                          "\": a tensor in shared memory needs \"", kSharedRegion,
                                          "\" and \"", kSharedSize, "\""));
  }
  TROUPE_ASSIGN_OR_RETURN(const RegionOwner owner, client ? client->Owner() : SharedClient().Owner());
  auto range = client->memory().Find(owner, *shared.region, shared.offset.value_or(0), *shared.byte_size);
  if (range.ok()) return range;
  return absl::Status(range.status().code(), Cat(tensor, ": ", Message(range.status())));
}

absl::StatusOr<InputBuffer> ReserveCharged(const SharedClient& client, InferenceService& service,
                                           Bytes size) {
  if (size.count() == 0) return ReserveExactly(service, size);
  TROUPE_ASSIGN_OR_RETURN(const RegionOwner owner, client.Owner());
  TROUPE_ASSIGN_OR_RETURN(auto charge, client.memory().Charge(owner, size));
  TROUPE_ASSIGN_OR_RETURN(InputBuffer buffer, ReserveExactly(service, size));
  return InputBuffer(std::make_unique<ChargedPlace>(buffer.TakePlace(), std::move(charge)));
}

}  // namespace troupe::gateway
