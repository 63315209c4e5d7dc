#include "security/identity.hpp"

#include "absl/strings/ascii.h"

#include "base/status.hpp"
#include "security/text.hpp"

namespace troupe::security {

namespace {

constexpr std::string_view kScheme = "troupe://";

// What came from outside is shown in errors without control characters and not at any length.
std::string Shown(std::string_view text) {
  std::string out(text.substr(0, 80));
  for (char& one : out)
    if (!absl::ascii_isprint(static_cast<unsigned char>(one))) one = '?';
  return out;
}

}  // namespace

std::string_view RoleName(Role role) {
  switch (role) {
    case Role::kManager:
      return "manager";
    case Role::kGateway:
      return "gateway";
    case Role::kNode:
      return "node";
    case Role::kAdmin:
      return "admin";
    case Role::kReader:
      return "reader";
  }
  return "unknown";
}

absl::StatusOr<Role> ParseRole(std::string_view text) {
  for (const Role role : kAllRoles)
    if (text == RoleName(role)) return role;
  return absl::InvalidArgumentError(
      Cat("'", Shown(text), "' is not a role; choose manager, gateway, node, admin or reader"));
}

std::string Roles::ToString() const {
  std::string out;
  for (const Role role : kAllRoles)
    if (Has(role)) Append(&out, out.empty() ? "" : ", ", RoleName(role));
  return out.empty() ? "no role" : out;
}

std::string Identity::ToString() const {
  return Cat("'", name, "' (", roles.ToString(), ", serial ", serial, ")");
}

absl::Status CheckName(std::string_view name) {
  bool good = !name.empty() && name.size() <= kMaxNameLength &&
              absl::ascii_isalnum(static_cast<unsigned char>(name.front()));
  for (const char one : name)
    good = good &&
           (absl::ascii_isalnum(static_cast<unsigned char>(one)) || one == '.' || one == '_' || one == '-');
  if (good) return absl::OkStatus();
  return absl::InvalidArgumentError(
      Cat("'", Shown(name), "' is not a valid name; a name has 1 to ", kMaxNameLength,
          " letters, digits, '.', '_' or '-', and begins with a letter or a digit"));
}

std::string FormatIdentityUri(Role role, std::string_view name) {
  return Cat(kScheme, RoleName(role), "/", name);
}

absl::Status AddIdentityUri(std::string_view uri, Identity& identity) {
  if (!uri.starts_with(kScheme))
    return absl::InvalidArgumentError(Cat("'", Shown(uri), "' is not a URI troupe://ROLE/NAME"));
  const std::string_view rest = uri.substr(kScheme.size());
  const auto slash = rest.find('/');
  if (slash == std::string_view::npos)
    return absl::InvalidArgumentError(Cat("'", Shown(uri), "' has no name; write troupe://ROLE/NAME"));
  TROUPE_ASSIGN_OR_RETURN(const Role role, ParseRole(rest.substr(0, slash)));
  const std::string_view name = rest.substr(slash + 1);
  TROUPE_RETURN_IF_ERROR(CheckName(name));
  if (!identity.name.empty() && identity.name != name)
    return absl::InvalidArgumentError(
        Cat("one certificate names two holders, '", identity.name, "' and '", name, "'"));
  identity.name = std::string(name);
  identity.roles.Add(role);
  return absl::OkStatus();
}

absl::StatusOr<Identity> ParseIdentityUris(std::span<const std::string> uris) {
  Identity identity;
  for (const auto& uri : uris)
    if (uri.starts_with(kScheme)) TROUPE_RETURN_IF_ERROR(AddIdentityUri(uri, identity));
  if (identity.roles.empty())
    return absl::InvalidArgumentError(
        "the certificate has no URI troupe://ROLE/NAME, so it says neither a role nor a name; make one with "
        "'troupe ca issue'");
  return identity;
}

absl::Status RequireRole(const Identity& identity, Roles wanted, std::string_view purpose) {
  if (identity.roles.HasAny(wanted)) return absl::OkStatus();
  std::string first = "ROLE";
  for (const Role role : kAllRoles)
    if (wanted.Has(role)) {
      first = RoleName(role);
      break;
    }
  return absl::PermissionDeniedError(Cat("certificate ", identity.ToString(), " may not ", purpose,
                                         ": that needs the role ", wanted.ToString(),
                                         "; issue one with 'troupe ca issue --role ", first, " NAME'"));
}

}  // namespace troupe::security
