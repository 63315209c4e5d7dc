// docs/onnx.md: what is supported, and which cases of the conformance data are not run, each with its reason.
#pragma once

#include <string>
#include <vector>

#include "tests/conformance/onnx_case.hpp"

namespace troupe::gpu::conformance {

struct Verdict {
  std::string name;
  std::string why_not;  // empty: runs and must pass
};

[[nodiscard]] std::vector<Verdict> Judge(const std::vector<OnnxCase>& cases);
[[nodiscard]] std::string DocsPage(const std::vector<Verdict>& verdicts);

}  // namespace troupe::gpu::conformance
