// IDENTITY: the name and roles that a certificate gives its holder. A certificate carries one URI for each
// role of its holder (a subject alternative name): troupe://ROLE/NAME, for example troupe://node/rack-3. All
// URIs of one certificate carry the same name.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace troupe::security {

enum class Role : std::uint8_t { kManager, kGateway, kNode, kAdmin, kReader };
inline constexpr Role kAllRoles[] = {Role::kManager, Role::kGateway, Role::kNode, Role::kAdmin,
                                     Role::kReader};

[[nodiscard]] std::string_view RoleName(Role role);
[[nodiscard]] absl::StatusOr<Role> ParseRole(std::string_view text);

// A set of roles.
class Roles {
 public:
  constexpr Roles() = default;
  constexpr Roles(std::initializer_list<Role> roles) {
    for (const Role role : roles) Add(role);
  }
  constexpr void Add(Role role) { bits_ |= Bit(role); }
  [[nodiscard]] constexpr bool Has(Role role) const { return (bits_ & Bit(role)) != 0; }
  [[nodiscard]] constexpr bool HasAny(Roles others) const { return (bits_ & others.bits_) != 0; }
  [[nodiscard]] constexpr bool empty() const { return bits_ == 0; }
  // "manager, gateway"; "no role" for the empty set.
  [[nodiscard]] std::string ToString() const;
  friend constexpr bool operator==(Roles, Roles) = default;

 private:
  static constexpr std::uint8_t Bit(Role role) {
    return static_cast<std::uint8_t>(1U << static_cast<unsigned>(role));
  }
  std::uint8_t bits_ = 0;
};

struct Identity {
  Roles roles;
  std::string name;
  std::string serial;  // of the certificate: lower-case hexadecimal digits

  // "'rack-3' (node, serial 1f2e...)", for errors and the audit.
  [[nodiscard]] std::string ToString() const;
  friend bool operator==(const Identity&, const Identity&) = default;
};

// 1 to 63 letters, digits, '.', '_' or '-', the first of them a letter or a digit.
inline constexpr std::size_t kMaxNameLength = 63;
[[nodiscard]] absl::Status CheckName(std::string_view name);

[[nodiscard]] std::string FormatIdentityUri(Role role, std::string_view name);
// Adds what `uri` says to `identity`. Refuses a URI of troupe's scheme that is malformed or names another
// holder than the URIs before it did.
[[nodiscard]] absl::Status AddIdentityUri(std::string_view uri, Identity& identity);
// The URIs of one certificate. URIs of other schemes are left alone; at least one must be of troupe's.
[[nodiscard]] absl::StatusOr<Identity> ParseIdentityUris(std::span<const std::string> uris);

// OK when `identity` has one of `wanted`; else one line that names the certificate, what it is for, what was
// wanted for `purpose` ("join as a node"), and the command that makes one.
[[nodiscard]] absl::Status RequireRole(const Identity& identity, Roles wanted, std::string_view purpose);

}  // namespace troupe::security
