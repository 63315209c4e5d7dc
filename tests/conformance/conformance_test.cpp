// Every case of the conformance data is a test of its own: it passes, or is skipped with the reason that
// docs/onnx.md lists. `--write-docs` writes that page instead.
#include <gtest/gtest.h>

#include <cstring>
#include <fstream>
#include <iostream>
#include <iterator>

#include "tests/conformance/declared.hpp"
#include "tests/conformance/docs_page.hpp"
#include "tests/conformance/run_case.hpp"

namespace troupe::gpu::conformance {
namespace {

constexpr const char* kPage = "docs/onnx.md";  // tests run in the root of the source tree
constexpr std::size_t kLeastRun = 764;

class CaseTest : public testing::Test {
 public:
  CaseTest(const OnnxCase& test, std::string why_not) : test_(test), why_not_(std::move(why_not)) {}
  void TestBody() override {
    if (!why_not_.empty()) GTEST_SKIP() << why_not_;
    RunNotes notes;
    const absl::Status status = RunCase(test_, notes);
    EXPECT_TRUE(status.ok()) << test_.name << ": " << status;
  }

 private:
  const OnnxCase& test_;
  std::string why_not_;
};

class PageTest : public testing::Test {
 public:
  explicit PageTest(const std::vector<Verdict>& verdicts) : verdicts_(verdicts) {}
  void TestBody() override {
    if (verdicts_.empty()) GTEST_SKIP() << "no cases in " << TestDataRoot() << ": install libonnx-testdata";
    std::ifstream file(kPage);
    const std::string page(std::istreambuf_iterator<char>(file), {});
    EXPECT_TRUE(page == DocsPage(verdicts_))
        << kPage << " is out of date: run onnx_conformance_test --write-docs";
  }

 private:
  const std::vector<Verdict>& verdicts_;
};

class CountTest : public testing::Test {
 public:
  explicit CountTest(const std::vector<Verdict>& verdicts) : verdicts_(verdicts) {}
  void TestBody() override {
    if (verdicts_.empty()) GTEST_SKIP() << "no cases in " << TestDataRoot() << ": install libonnx-testdata";
    std::size_t run = 0;
    for (const Verdict& verdict : verdicts_) run += verdict.why_not.empty() ? 1 : 0;
    EXPECT_GE(run, kLeastRun);
    std::cout << run << " of " << verdicts_.size() << " cases are declared\n";
  }

 private:
  const std::vector<Verdict>& verdicts_;
};

void Register(const std::vector<OnnxCase>& cases, const std::vector<Verdict>& verdicts) {
  testing::RegisterTest("Conformance", "PageIsUpToDate", nullptr, nullptr, __FILE__, __LINE__,
                        [&]() -> testing::Test* { return new PageTest(verdicts); });
  testing::RegisterTest("Conformance", "EnoughIsDeclared", nullptr, nullptr, __FILE__, __LINE__,
                        [&]() -> testing::Test* { return new CountTest(verdicts); });
  for (std::size_t i = 0; i < cases.size(); ++i) {
    testing::RegisterTest("Onnx", cases[i].name.c_str(), nullptr, nullptr, __FILE__, __LINE__,
                          [&test = cases[i], why_not = verdicts[i].why_not]() -> testing::Test* {
                            return new CaseTest(test, why_not);
                          });
  }
}

}  // namespace
}  // namespace troupe::gpu::conformance

int main(int argc, char** argv) {
  using namespace troupe::gpu::conformance;
  testing::InitGoogleTest(&argc, argv);
  const std::vector<OnnxCase> cases = LoadCases();
  const std::vector<Verdict> verdicts = Judge(cases);
  if (argc > 1 && std::strcmp(argv[1], "--write-docs") == 0) {
    std::ofstream(kPage) << DocsPage(verdicts);
    return 0;
  }
  Register(cases, verdicts);
  return RUN_ALL_TESTS();
}
