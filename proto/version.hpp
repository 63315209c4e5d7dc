// Which Troupe a program is: its release, the commit that it was built from, and the formats that it writes.
#pragma once

#include <string>

namespace troupe::proto {

// "troupe 0.1.0", and lines for the commit and the formats; what --version prints, without the last newline.
[[nodiscard]] std::string VersionText(const std::string& program);

}  // namespace troupe::proto
