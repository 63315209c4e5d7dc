// The lines with which a measuring program reports to a script: "name value [baseline]", one for each round.
#pragma once

#include <cstdio>
#include <string>

namespace troupe::gpu::bench {

inline void Say(const std::string& name, double value) {
  std::printf("%s %.6f\n", name.c_str(), value);
  std::fflush(stdout);
}
inline void Say(const std::string& name, double value, double baseline) {
  std::printf("%s %.6f %.6f\n", name.c_str(), value, baseline);
  std::fflush(stdout);
}

}  // namespace troupe::gpu::bench
