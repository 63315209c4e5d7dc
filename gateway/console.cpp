#include "gateway/console.hpp"

#include <array>

#include "gateway/http_error.hpp"
#include "gateway/text.hpp"

namespace troupe::gateway {

namespace {

struct File {
  std::string_view name;
  std::string_view type;
  const std::string_view& body;
};
constexpr std::array<File, 3> kFiles = {{{"", "text/html; charset=utf-8", kConsoleHtml},
                                         {"console.css", "text/css; charset=utf-8", kConsoleCss},
                                         {"console.js", "text/javascript; charset=utf-8", kConsoleJs}}};

// The page runs its own script alone, asks its own gateway alone, and is shown inside no other page. Each release has files of its
// own under the same names, so that no copy is kept.
constexpr std::string_view kHeaders =
    "Content-Security-Policy: default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'\r\n"
    "X-Content-Type-Options: nosniff\r\n"
    "Referrer-Policy: no-referrer\r\n"
    "Cache-Control: no-store\r\n";

}  // namespace

HttpResponse ConsoleFile(std::string_view name) {
  for (const auto& file : kFiles) {
    if (file.name != name) continue;
    HttpResponse response;
    response.content_type = file.type;
    response.headers = kHeaders;
    response.body = file.body;
    return response;
  }
  return ErrorResponse(404, Cat("the console has no file '", name.substr(0, 200), "'; the page is /console"));
}

}  // namespace troupe::gateway
