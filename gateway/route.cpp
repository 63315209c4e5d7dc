#include "gateway/route.hpp"
#include "gateway/text.hpp"

#include <array>
#include <charconv>

#include "base/check.hpp"
#include "base/status.hpp"

namespace troupe::gateway {

namespace {

constexpr std::size_t kMaxSegments = 8;

struct Path {
  std::array<std::string_view, kMaxSegments> segments;
  std::size_t count = 0;
};

// False when there are more segments than any path has. One slash at the end is forgiven.
bool Split(std::string_view path, Path& out) {
  if (path.empty() || path.front() != '/') return false;
  path.remove_prefix(1);
  if (!path.empty() && path.back() == '/') path.remove_suffix(1);
  while (!path.empty()) {
    if (out.count == kMaxSegments) return false;
    const std::size_t slash = path.find('/');
    out.segments[out.count++] = path.substr(0, slash);
    if (slash == std::string_view::npos) break;
    path.remove_prefix(slash + 1);
    if (path.empty()) return false;
  }
  return true;
}

// '*' stands for the name, '@' for the version. Fixed words come before '*', so "/v2/models/stats" is the
// statistics of all; the hottest comes first.
struct Pattern {
  std::string_view text;
  Endpoint endpoint;
};
constexpr std::array<Pattern, 40> kPatterns = {{
    {"/v2/models/*/infer", Endpoint::kInfer},
    {"/v2/models/*/versions/@/infer", Endpoint::kInfer},
    {"/v2", Endpoint::kServerMetadata},
    {"/v2/health/live", Endpoint::kLive},
    {"/v2/health/ready", Endpoint::kReady},
    {"/v2/models/stats", Endpoint::kAllStatistics},
    {"/v2/models/*", Endpoint::kModelMetadata},
    {"/v2/models/*/ready", Endpoint::kModelReady},
    {"/v2/models/*/config", Endpoint::kModelConfig},
    {"/v2/models/*/stats", Endpoint::kModelStatistics},
    {"/v2/models/*/versions/@", Endpoint::kModelMetadata},
    {"/v2/models/*/versions/@/ready", Endpoint::kModelReady},
    {"/v2/models/*/versions/@/config", Endpoint::kModelConfig},
    {"/v2/models/*/versions/@/stats", Endpoint::kModelStatistics},
    {"/v2/repository/index", Endpoint::kRepositoryIndex},
    {"/v2/repository/models/*/load", Endpoint::kRepositoryLoad},
    {"/v2/repository/models/*/unload", Endpoint::kRepositoryUnload},
    {"/v2/systemsharedmemory/status", Endpoint::kSharedStatus},
    {"/v2/systemsharedmemory/unregister", Endpoint::kSharedUnregister},
    {"/v2/systemsharedmemory/region/*/status", Endpoint::kSharedStatus},
    {"/v2/systemsharedmemory/region/*/register", Endpoint::kSharedRegister},
    {"/v2/systemsharedmemory/region/*/unregister", Endpoint::kSharedUnregister},
    {"/v2/troupe/functions", Endpoint::kFunctions},
    {"/v2/troupe/functions/*", Endpoint::kFunction},
    {"/v2/troupe/functions/*/canary", Endpoint::kCanary},
    {"/v2/troupe/functions/*/promote", Endpoint::kPromote},
    {"/v2/troupe/functions/*/rollback", Endpoint::kRollBack},
    {"/v2/troupe/functions/*/sharing", Endpoint::kSharing},
    {"/v2/troupe/workflows", Endpoint::kWorkflows},
    {"/v2/troupe/workflows/*", Endpoint::kWorkflow},
    {"/v2/troupe/runs", Endpoint::kRuns},
    {"/v2/troupe/runs/*", Endpoint::kRun},
    {"/v2/troupe/imports", Endpoint::kImports},
    {"/v2/troupe/imports/*", Endpoint::kImport},
    {"/v2/troupe/uploads/*", Endpoint::kUpload},
    {"/v2/troupe/cluster", Endpoint::kCluster},
    {"/metrics", Endpoint::kMetrics},
    {"/healthz", Endpoint::kHealthz},
    {"/console", Endpoint::kConsole},
    {"/console/*", Endpoint::kConsole},
}};

// True when `path` has the pattern's form; fills what stands in for '*' and '@' (still encoded).
bool Matches(const Path& path, const Path& pattern, std::string_view& name, std::string_view& version) {
  if (path.count != pattern.count) return false;
  for (std::size_t i = 0; i < path.count; ++i) {
    if (pattern.segments[i] == "*") {
      name = path.segments[i];
    } else if (pattern.segments[i] == "@") {
      version = path.segments[i];
    } else if (pattern.segments[i] != path.segments[i]) {
      return false;
    }
    if (path.segments[i].empty()) return false;
  }
  return true;
}

const std::array<Path, kPatterns.size()>& SplitPatterns() {
  static const auto paths = [] {
    std::array<Path, kPatterns.size()> out;
    for (std::size_t i = 0; i < out.size(); ++i) {
      TROUPE_CHECK(Split(kPatterns[i].text, out[i]), "every pattern is a path");
    }
    return out;
  }();
  return paths;
}

// "http://host:1/v2" -> "/v2": a target may name the host (RFC 9112, 3.2.2).
std::string_view WithoutAuthority(std::string_view target) {
  if (!target.starts_with("http://")) return target;
  const std::size_t slash = target.find('/', 7);
  return slash == std::string_view::npos ? "/" : target.substr(slash);
}

absl::Status NoSuchPath(std::string_view path) {
  return absl::NotFoundError(Cat("no such path: ", path.substr(0, 200),
                                 "; POST /v2/repository/index lists the functions, POST "
                                 "/v2/models/NAME/infer calls one, and /console shows them in a browser"));
}

}  // namespace

absl::StatusOr<std::string> PercentDecode(std::string_view text, bool plus_is_space) {
  std::string out;
  out.reserve(text.size());
  for (std::size_t i = 0; i < text.size(); ++i) {
    char c = text[i];
    if (c == '+' && plus_is_space) c = ' ';
    if (text[i] == '%') {
      unsigned value = 0;
      const char* const digits = text.data() + i + 1;
      const bool whole = text.size() - i > 2;
      if (!whole || std::from_chars(digits, digits + 2, value, 16).ptr != digits + 2) {
        return absl::InvalidArgumentError(Cat("broken percent-encoding in '", text.substr(0, 200), "'"));
      }
      c = static_cast<char>(value);
      i += 2;
    }
    if (c == '\0') return absl::InvalidArgumentError("NUL in a path or query");
    out += c;
  }
  return out;
}

absl::StatusOr<std::map<std::string, std::string>> ParseQuery(std::string_view query) {
  std::map<std::string, std::string> out;
  while (!query.empty()) {
    const std::size_t end = query.find('&');
    const std::string_view pair = query.substr(0, end);
    query.remove_prefix(end == std::string_view::npos ? query.size() : end + 1);
    if (pair.empty()) continue;
    const std::size_t equals = pair.find('=');
    TROUPE_ASSIGN_OR_RETURN(std::string key, PercentDecode(pair.substr(0, equals), true));
    std::string value;
    if (equals != std::string_view::npos) {
      TROUPE_ASSIGN_OR_RETURN(value, PercentDecode(pair.substr(equals + 1), true));
    }
    if (!out.emplace(key, std::move(value)).second) {
      return absl::InvalidArgumentError(Cat("query parameter '", key, "' is given twice"));
    }
  }
  return out;
}

absl::StatusOr<Route> ParseRoute(std::string_view target) {
  target = WithoutAuthority(target);
  const std::size_t question = target.find('?');
  const std::string_view path_text = target.substr(0, question);
  Path path;
  if (!Split(path_text, path)) return NoSuchPath(path_text);
  for (std::size_t i = 0; i < kPatterns.size(); ++i) {
    std::string_view name;
    std::string_view version;
    if (!Matches(path, SplitPatterns()[i], name, version)) continue;
    Route route;
    route.endpoint = kPatterns[i].endpoint;
    if (question != std::string_view::npos) route.query = target.substr(question + 1);
    TROUPE_ASSIGN_OR_RETURN(route.name, PercentDecode(name));
    TROUPE_ASSIGN_OR_RETURN(route.version, PercentDecode(version));
    return route;
  }
  return NoSuchPath(path_text);
}

std::string_view AllowedMethods(Endpoint endpoint) {
  switch (endpoint) {
    case Endpoint::kInfer:
    case Endpoint::kRepositoryIndex:
    case Endpoint::kRepositoryLoad:
    case Endpoint::kRepositoryUnload:
    case Endpoint::kSharedRegister:
    case Endpoint::kSharedUnregister:
    case Endpoint::kCanary:
    case Endpoint::kPromote:
    case Endpoint::kRollBack:
    case Endpoint::kSharing:
      return "POST";
    case Endpoint::kFunction:
      return "GET, HEAD, POST, DELETE";
    case Endpoint::kWorkflows:
      return "GET, HEAD, POST";
    case Endpoint::kWorkflow:
      return "DELETE";
    case Endpoint::kUpload:
      return "GET, HEAD, PATCH, DELETE";
    case Endpoint::kRun:
      return "GET, HEAD, DELETE";
    default:
      return "GET, HEAD";
  }
}

bool MethodAllowed(Endpoint endpoint, std::string_view method) {
  std::string_view allowed = AllowedMethods(endpoint);
  while (!allowed.empty()) {
    const std::size_t comma = allowed.find(',');
    if (allowed.substr(0, comma) == method) return true;
    if (comma == std::string_view::npos) return false;
    allowed.remove_prefix(comma + 2);
  }
  return false;
}

}  // namespace troupe::gateway
