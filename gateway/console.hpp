// CONSOLE: a page for browsers that shows the cluster: /console. The page says nothing of the cluster itself; its script asks
// what any client may ask, with the key that the reader gives it.
#pragma once

#include <string_view>

#include "gateway/http_message.hpp"

namespace troupe::gateway {

// "" is the page; "console.css" and "console.js" are what it loads. 404 for any other name.
[[nodiscard]] HttpResponse ConsoleFile(std::string_view name);

// The sources in gateway/console/.
extern const std::string_view kConsoleHtml;
extern const std::string_view kConsoleCss;
extern const std::string_view kConsoleJs;

}  // namespace troupe::gateway
