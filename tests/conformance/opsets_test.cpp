// Every case of opsets 18 to 23, of fused operators and of classic models is a test of its own, as the file has it, and as a
// deployment changes and packs it.
#include <gtest/gtest.h>

#include "base/random.hpp"
#include "gpu/import/import_model.hpp"
#include "gpu/import/model_check.hpp"
#include "tests/conformance/declared.hpp"
#include "tests/conformance/run_case.hpp"
#include "tests/draws.hpp"

namespace troupe::gpu::conformance {
namespace {

constexpr std::size_t kLeastCases = 1129;
constexpr std::size_t kLeastClassicCases = 197;

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
  EnoughCases(std::size_t cases, std::size_t least) : cases_(cases), least_(least) {}
  void TestBody() override { EXPECT_GE(cases_, least_); }

 private:
  std::size_t cases_;
  std::size_t least_;
};

// The models of the cases with a few bits or bytes changed, or cut: each file gets an answer that tells why, or a
// model that is sound and can be run.
class DamagedFiles : public testing::Test {
 public:
  explicit DamagedFiles(const std::vector<OnnxCase>& cases) : cases_(cases) {}
  void TestBody() override {
    ImportOptions tight;
    tight.max_weights = MiB(16);
    tight.max_folded = MiB(1);
    tight.folding = {std::uint64_t{1} << 22, MiB(16)};
    std::size_t refused = 0;
    Random random(18232026);
    for (const OnnxCase& test : cases_) {
      const std::string file = test.model.SerializeAsString();
      for (int round = 0; round < kDamages; ++round) {
        const std::string damaged = Damage(random, file);
        const auto imported = ImportOnnx(std::as_bytes(std::span(damaged)), tight);
        refused += imported.ok() ? 0 : 1;
        if (imported.ok()) {
          EXPECT_TRUE(CheckModel(imported->model, imported->weights.size()).ok()) << test.name;
          EXPECT_NE(RunOnZeros(*imported).code(), absl::StatusCode::kInternal) << test.name;
        } else {
          EXPECT_NE(imported.status().code(), absl::StatusCode::kInternal) << test.name << imported.status();
          EXPECT_FALSE(imported.status().message().empty()) << test.name;
        }
      }
    }
    // Most files are damaged where it shows, and some are not.
    EXPECT_GT(refused, cases_.size() * kDamages / 4);
    EXPECT_LT(refused, cases_.size() * kDamages);
  }

 private:
  static constexpr int kDamages = test::Draws(30);

  static std::string Damage(Random& random, std::string file) {
    const std::size_t at = random.Below(file.size());
    switch (random.Below(4)) {
      case 0:
        return file.substr(0, at);
      case 1:
        file.insert(at, 1, static_cast<char>(random.Below(256)));
        return file;
      default:
        for (std::uint64_t flips = 1 + random.Below(3); flips > 0; --flips)
          file[random.Below(file.size())] ^= static_cast<char>(1U << random.Below(8));
        return file;
    }
  }

  const std::vector<OnnxCase>& cases_;
};

// A factor in BF16 has eight bits, and a network has some layers of them.
RunOptions InBf16() {
  return {.of_largest = 0.05, .simplify = true, .pack = true, .precision = proto::PRECISION_BF16};
}

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
  const std::vector<OnnxCase> classic = LoadClassicCases();
  testing::RegisterTest("Opsets", "EnoughCases", nullptr, nullptr, __FILE__, __LINE__,
                        [&]() -> testing::Test* { return new EnoughCases(cases.size(), kLeastCases); });
  testing::RegisterTest("Opsets", "DamagedFilesGetAnAnswer", nullptr, nullptr, __FILE__, __LINE__,
                        [&]() -> testing::Test* { return new DamagedFiles(cases); });
  testing::RegisterTest(
      "Classic", "EnoughCases", nullptr, nullptr, __FILE__, __LINE__,
      [&]() -> testing::Test* { return new EnoughCases(classic.size(), kLeastClassicCases); });
  testing::RegisterTest("Classic", "DamagedFilesGetAnAnswer", nullptr, nullptr, __FILE__, __LINE__,
                        [&]() -> testing::Test* { return new DamagedFiles(classic); });
  for (const auto* group : {&cases, &classic}) {
    for (const OnnxCase& test : *group) {
      const bool network = IsNetwork(test) || test.name.starts_with("classic/export_");
      const double rtol = network ? 1e-4 : 1e-3;
      Register("AsExported", test, {.rtol = rtol});
      Register("AsDeployed", test, {.rtol = rtol, .simplify = true, .pack = true});
      if (network) Register("InBf16", test, InBf16());
    }
  }
  return RUN_ALL_TESTS();
}
