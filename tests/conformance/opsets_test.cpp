// Every case of opsets 18 to 23 is a test of its own, as the file has it, and as a deployment changes and packs it.
#include <gtest/gtest.h>

#include "tests/conformance/declared.hpp"
#include "tests/conformance/run_case.hpp"

namespace troupe::gpu::conformance {
namespace {

constexpr std::size_t kLeastCases = 700;

class OpsetCase : public testing::Test {
 public:
  OpsetCase(const OnnxCase& test, RunOptions options) : test_(test), options_(std::move(options)) {}
  void TestBody() override {
    EXPECT_EQ(WhyNotDeclared(test_), "") << test_.name;
    RunNotes notes;
    const absl::Status status = RunCase(test_, notes, options_);
    EXPECT_TRUE(status.ok()) << test_.name << ": " << status;
    EXPECT_FALSE(notes.constant_shapes) << test_.name << " has a shape that only the run knows";
  }

 private:
  const OnnxCase& test_;
  RunOptions options_;
};

class EnoughCases : public testing::Test {
 public:
  explicit EnoughCases(std::size_t cases) : cases_(cases) {}
  void TestBody() override { EXPECT_GE(cases_, kLeastCases); }

 private:
  std::size_t cases_;
};

void Register(const char* suite, const OnnxCase& test, const RunOptions& options) {
  testing::RegisterTest(suite, test.name.c_str(), nullptr, nullptr, __FILE__, __LINE__,
                        [&test, options]() -> testing::Test* { return new OpsetCase(test, options); });
}

}  // namespace
}  // namespace troupe::gpu::conformance

int main(int argc, char** argv) {
  using namespace troupe::gpu::conformance;
  testing::InitGoogleTest(&argc, argv);
  const std::vector<OnnxCase> cases = LoadOpsetCases();
  testing::RegisterTest("Opsets", "EnoughCases", nullptr, nullptr, __FILE__, __LINE__,
                        [&]() -> testing::Test* { return new EnoughCases(cases.size()); });
  for (const OnnxCase& test : cases) {
    const bool network = test.name.starts_with("networks/");
    const double rtol = network ? 1e-4 : 1e-3;
    Register("AsExported", test, {.rtol = rtol});
    Register("AsDeployed", test, {.rtol = rtol, .simplify = true, .pack = true});
  }
  return RUN_ALL_TESTS();
}
