#include "gateway/shared_exchange.hpp"

#include <optional>
#include <string>
#include <utility>

#include "base/status.hpp"
#include "gateway/http_error.hpp"
#include "gateway/http_exchanges.hpp"
#include "gateway/infer_parameters.hpp"
#include "gateway/json_cursor.hpp"
#include "gateway/json_text.hpp"
#include "gateway/text.hpp"

namespace troupe::gateway {

namespace {

constexpr std::array<std::string_view, 3> kMembers = {"key", "offset", "byte_size"};

// {"key": "/name", "offset": N, "byte_size": N}; without an offset it is 0.
absl::StatusOr<RegionPlace> ParsePlace(std::string_view body) {
  RegionPlace place;
  bool has_size = false;
  Seen seen;
  JsonCursor cursor(body);
  if (!cursor.BeginObject()) return cursor.status();
  for (std::string_view key; cursor.NextMember(key);) {
    TROUPE_RETURN_IF_ERROR(Once(cursor, seen, "a region", key, kMembers));
    std::string_view text;
    if (key == "key") {
      if (cursor.ReadString(text)) place.key = text;
    } else if (key == "offset") {
      cursor.ReadUint(place.offset);
    } else if (key == "byte_size") {
      has_size = cursor.ReadUint(place.byte_size);
    } else {
      cursor.Skip();
    }
  }
  if (!cursor.Finish()) return cursor.status();
  if (!place.key.empty() && has_size) return place;
  return absl::InvalidArgumentError(
      Cat("\"", has_size ? "key" : "byte_size",
          "\" is missing: a region needs the \"key\" of a shared memory object and a \"byte_size\""));
}

std::optional<std::string> RegionOf(const Route& route) {
  return route.name.empty() ? std::nullopt : std::optional(route.name);
}

std::string Text(const std::vector<SharedMemory::Status>& regions) {
  std::string out = "[";
  for (const SharedMemory::Status& region : regions) {
    out += out.size() > 1 ? ",{\"name\":" : "{\"name\":";
    AppendJsonText(out, region.name);
    out += ",\"key\":";
    AppendJsonText(out, region.place.key);
    Append(out, ",\"offset\":", region.place.offset, ",\"byte_size\":", region.place.byte_size, "}");
  }
  return out + "]";
}

HttpResponse Done() {
  HttpResponse response;
  response.body = "{}";
  return response;
}

// Answers when the last request that uses one of the regions is over, which then drops the notice.
void Unregister(const SharedClient& client, const RegionOwner& owner, const Route& route, HttpReply reply) {
  auto held = std::make_shared<HttpReply>(std::move(reply));
  const std::shared_ptr<const void> ended(held.get(), [held](const void*) { ReplyWith(*held, Done()); });
  client.memory().Unregister(owner, RegionOf(route), ended);
}

HttpResponse Describe(const SharedClient& client, const RegionOwner& owner, const Route& route) {
  const auto regions = client.memory().Describe(owner, RegionOf(route));
  if (!regions.ok()) return ErrorResponse(regions.status());
  HttpResponse response;
  response.body = Text(*regions);
  return response;
}

HttpResponse Register(const SharedClient& client, const RegionOwner& owner, const Route& route,
                      std::string_view body) {
  auto place = ParsePlace(body);
  if (!place.ok()) return ErrorResponse(place.status());
  const auto status = client.memory().Register(owner, route.name, *std::move(place));
  return status.ok() ? Done() : ErrorResponse(status);
}

}  // namespace

std::shared_ptr<HttpExchange> MakeSharedExchange(const Route& route, SharedClient client) {
  const auto owner = client.Owner();
  if (!owner.ok()) return Ready(ErrorResponse(owner.status()));
  if (route.endpoint == Endpoint::kSharedStatus) return Ready(Describe(client, *owner, route));
  Route kept = route;
  kept.query = {};  // a view of the head
  return std::make_shared<TextExchange>(kMaxControlBody,
                                        [client = std::move(client), owner = *owner, route = std::move(kept)](
                                            const std::string& body, HttpReply reply) {
                                          if (route.endpoint == Endpoint::kSharedUnregister)
                                            return Unregister(client, owner, route, std::move(reply));
                                          ReplyWith(reply, Register(client, owner, route, body));
                                        });
}

}  // namespace troupe::gateway
