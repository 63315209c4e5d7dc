// The importer as a process: every way in which it can end, as the daemon sees it.
#include "gpu/import/import_runner.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <fstream>
#include <map>

#include "base/sanitizer.hpp"
#include "base/tar.hpp"
#include "gpu/import/canonical_files.hpp"
#include "gpu/ops/layout.hpp"
#include "tests/temporary_directory.hpp"
#include "tests/unit/gpu_import/onnx_builder.hpp"

namespace troupe::gpu::test {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

class ImportRunnerTest : public testing::Test {
 protected:
  void SetUp() override {
    const char* build = std::getenv("TROUPE_BUILD_DIR");
    program_ = fs::path(build == nullptr ? "build/release" : build) / "bin" / "troupe-import";
    fs::create_directory(folder_ / "out");
  }

  // The report of a model that is not divided.
  static absl::StatusOr<ImportReport> Only(absl::StatusOr<std::vector<ImportReport>> reports) {
    if (!reports.ok()) return reports.status();
    if (reports->size() != 1) return absl::InternalError("there are stages");
    return std::move(reports->front());
  }
  absl::StatusOr<std::vector<ImportReport>> ImportAll(const std::string& file, const ImportLimits& limits) {
    std::ofstream(folder_ / "model.onnx", std::ios::binary) << file;
    return RunImport(program_, folder_ / "model.onnx", folder_ / "out", limits);
  }
  absl::StatusOr<ImportReport> Import(const std::string& file, const ImportLimits& limits = {}) {
    return Only(ImportAll(file, limits));
  }
  // A program that does not import, in the importer's place.
  absl::StatusOr<ImportReport> Pretend(const std::string& script, const ImportLimits& limits = {}) {
    const fs::path path = folder_ / "pretender";
    std::ofstream(path) << "#!/bin/sh\n" << script << "\n";
    chmod(path.c_str(), 0700);
    return Only(RunImport(path, folder_ / "model.onnx", folder_ / "out", limits));
  }

  const troupe::test::TemporaryDirectory place_;
  const fs::path folder_ = place_.path();
  fs::path program_;
};

TEST_F(ImportRunnerTest, ImportsASoundModel) {
  const auto report = Import(SmallNetwork().File());
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_EQ(report->name, "test");
  ASSERT_EQ(report->inputs.size(), 1);
  EXPECT_EQ(report->inputs[0].type(), proto::FP32);
  EXPECT_THAT(report->inputs[0].shape(), testing::ElementsAre(-1, 3, 8, 8));
  EXPECT_THAT(report->outputs[0].shape(), testing::ElementsAre(-1, 4));
  const auto read = ReadCanonical(folder_ / "out", report->digest);
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(Bytes(read->weights.size()), report->weights);
  EXPECT_EQ(static_cast<std::uint64_t>(read->model.steps_size()), report->steps);
}

TEST_F(ImportRunnerTest, PacksOnRequest) {
  ImportLimits limits;
  limits.pack = true;
  const auto report = Import(SmallNetwork().File(), limits);
  ASSERT_TRUE(report.ok()) << report.status();
  const auto packed = ReadCanonical(folder_ / "out" / kPackedFolder, report->packed_digest);
  ASSERT_TRUE(packed.ok()) << packed.status();
  EXPECT_FALSE(packed->model.packed_for().empty());
}

// The models of both precisions have the same canonical weights, and the one in BF16 is packed in half of the bytes.
TEST_F(ImportRunnerTest, ThePrecisionIsPartOfTheModel) {
  if (!ComputesBf16()) GTEST_SKIP() << "this processor does not compute in BF16";
  OnnxBuilder b(17);
  b.Input("x", {-1, 64});
  b.Weight("w", {64, 256}, std::vector<float>(64 * 256, 0.5F));
  b.Node("MatMul", {"x", "w"}, {"y"});
  b.Output("y", {-1, 256});
  ImportLimits limits;
  limits.pack = true;
  std::map<proto::Precision, std::pair<proto::Model, proto::Model>> made;
  for (const auto precision : {proto::PRECISION_FP32, proto::PRECISION_BF16}) {
    limits.precision = precision;
    const auto report = Import(b.File(), limits);
    ASSERT_TRUE(report.ok()) << report.status();
    const auto canonical = ReadCanonical(folder_ / "out", report->digest);
    const auto packed = ReadCanonical(folder_ / "out" / kPackedFolder, report->packed_digest);
    ASSERT_TRUE(canonical.ok() && packed.ok()) << canonical.status() << packed.status();
    EXPECT_EQ(canonical->model.precision(), precision);
    made[precision] = {canonical->model, packed->model};
    fs::remove_all(folder_ / "out");
    fs::create_directory(folder_ / "out");
  }
  const auto& [full, full_packed] = made[proto::PRECISION_FP32];
  const auto& [half, half_packed] = made[proto::PRECISION_BF16];
  EXPECT_NE(full.SerializeAsString(), half.SerializeAsString());
  EXPECT_EQ(full.weights_digest(), half.weights_digest());
  EXPECT_EQ(full_packed.weights_bytes(), 2 * half_packed.weights_bytes());
  EXPECT_EQ(half_packed.packed_for(), full_packed.packed_for() + "+bf16");
}

// Two layers of 64 KiB each, and a GPU that holds one of them at a time.
TEST_F(ImportRunnerTest, ImportsAllStagesOfAModelThatIsDivided) {
  OnnxBuilder b;
  b.Input("x", {-1, 128});
  for (const char* layer : {"1", "2"})
    b.Weight(std::string("w") + layer, {128, 128}, std::vector<float>(128 * 128, 0.5F));
  b.graph().mutable_initializer(1)->mutable_raw_data()->front() ^= 1;
  b.Node("MatMul", {"x", "w1"}, {"h"});
  b.Node("MatMul", {"h", "w2"}, {"y"});
  b.Output("y", {-1, 128});
  ImportLimits limits;
  limits.pack = true;
  limits.stages = {KiB(100), KiB(100)};
  const auto reports = ImportAll(b.File(), limits);
  ASSERT_TRUE(reports.ok()) << reports.status();
  ASSERT_EQ(reports->size(), 2);
  for (std::uint32_t stage = 1; stage <= 2; ++stage) {
    const auto& report = (*reports)[stage - 1];
    EXPECT_EQ(report.stage, stage);
    EXPECT_EQ(report.stages, 2);
    EXPECT_EQ(report.weights, KiB(64));
    EXPECT_THAT(report.model_outputs, ElementsAre("y"));
    EXPECT_EQ(report.inputs[0].name(), stage == 1 ? "x" : "h");
    const auto folder = folder_ / "out" / StageFolder(stage);
    EXPECT_TRUE(ReadCanonical(folder, report.digest).ok());
    EXPECT_TRUE(ReadCanonical(folder / kPackedFolder, report.packed_digest).ok());
  }
  fs::remove_all(folder_ / "out");
  fs::create_directory(folder_ / "out");
  limits.stages = {KiB(200), KiB(100)};
  const auto whole = ImportAll(b.File(), limits);
  ASSERT_TRUE(whole.ok()) << whole.status();
  ASSERT_EQ(whole->size(), 1);
  EXPECT_EQ(whole->front().stages, 1);
  EXPECT_THAT(whole->front().model_outputs, IsEmpty());
  EXPECT_TRUE(ReadCanonical(folder_ / "out" / StageFolder(1), whole->front().digest).ok());
}

constexpr std::uint64_t kTableBytes = MiB(300).count();

// An archive of a model and its table, which is a hole: y = table[x] w, or with the table transposed before, which is
// computed at the import.
void WriteLargeModel(const fs::path& path, bool transposes) {
  OnnxBuilder b;
  b.Input("x", {1}, onnx::TensorProto::INT64);
  onnx::TensorProto& table = b.Weight("table", {static_cast<std::int64_t>(kTableBytes / 4096), 1024}, {});
  table.clear_raw_data();
  table.set_data_location(onnx::TensorProto::EXTERNAL);
  auto& location = *table.add_external_data();
  location.set_key("location");
  location.set_value("table.bin");
  if (transposes) b.Node("Transpose", {"table"}, {"turned"});
  b.Node("Gather", {transposes ? "turned" : "table", "x"}, {"row"});
  b.Node("MatMul", {"row", "w"}, {"y"});
  const std::int64_t columns = transposes ? kTableBytes / 4096 : 1024;
  b.Weight("w", {columns, 2}, std::vector<float>(static_cast<std::size_t>(columns) * 2, 0.5f));
  b.Output("y", {1, 2});
  const std::string model = b.File();
  std::ofstream archive(path, std::ios::binary);
  archive << TarHeader("model.onnx", model.size()) << model << std::string(TarPadding(model.size()), '\0')
          << TarHeader("table.bin", kTableBytes);
  archive.close();
  fs::resize_file(path, fs::file_size(path) + kTableBytes);
}

// The weights are more than the import may use of memory: they are read where they lie and written as they are read. What
// is computed of them needs memory.
TEST_F(ImportRunnerTest, AModelLargerThanItsMemoryIsImportedAndPacked) {
  ImportLimits limits;
  limits.memory = MiB(200);
  limits.pack = true;
  WriteLargeModel(folder_ / "model.onnx", false);
  const auto report = Only(RunImport(program_, folder_ / "model.onnx", folder_ / "out", limits));
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_EQ(report->weights, Bytes(kTableBytes) + KiB(8));
  const auto packed = ReadCanonical(folder_ / "out" / kPackedFolder, report->packed_digest);
  ASSERT_TRUE(packed.ok()) << packed.status();
  EXPECT_GE(Bytes(packed->weights.size()), report->weights);
  if (kSanitized) return;
  WriteLargeModel(folder_ / "model.onnx", true);
  const auto folded = Only(RunImport(program_, folder_ / "model.onnx", folder_ / "out", limits));
  EXPECT_THAT(std::string(folded.status().message()), HasSubstr("more memory than its limit"));
}

// Height and width are open, and the window of 5 does not fit into a single pixel.
TEST_F(ImportRunnerTest, PacksForASizeThatTheModelWorksWith) {
  OnnxBuilder b;
  b.Input("x", {-1, 1, -1, -1});
  b.Weight("w", {2, 1, 5, 5}, std::vector<float>(50, 0.5F));
  b.Node("Conv", {"x", "w"}, {"y"});
  b.Output("y", {-1, 2, -1, -1});
  ImportLimits limits;
  limits.pack = true;
  const auto report = Import(b.File(), limits);
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_THAT(report->likely_sizes, ElementsAre(8u, 8u));
  EXPECT_THAT(Import(SmallNetwork().File(), limits)->likely_sizes, IsEmpty()) << "only rows are open";
  EXPECT_THAT(Import(b.File())->likely_sizes, IsEmpty()) << "nothing was packed";
  ImportReport told = *report;
  EXPECT_EQ(ParseReport(ToJson(told))->likely_sizes, report->likely_sizes);
  told.likely_sizes = {8, kMostLikelySize + 1};
  EXPECT_FALSE(ParseReport(ToJson(told)).ok());
  told.likely_sizes = {8, 0};
  EXPECT_FALSE(ParseReport(ToJson(told)).ok());
  told.likely_sizes = {8};
  EXPECT_FALSE(ParseReport(ToJson(told)).ok()) << "two dimensions are open";
}

void Name(onnx::ValueInfoProto& input, int dimension, const std::string& name) {
  input.mutable_type()->mutable_tensor_type()->mutable_shape()->mutable_dim(dimension)->set_dim_param(name);
}

// A mask is as long as the past and the new tokens together, as in a decoder with a cache.
TEST_F(ImportRunnerTest, PacksForSizesThatFitTogether) {
  OnnxBuilder b;
  Name(b.Input("past", {1, -1, 2}), 1, "past");
  Name(b.Input("new", {1, -1, 2}), 1, "length");
  Name(b.Input("mask", {1, 1, -1}), 2, "total");
  SetInt(b.Node("Concat", {"past", "new"}, {"all"}), "axis", 1);
  b.Node("MatMul", {"mask", "all"}, {"y"});
  b.Output("y", {1, 1, 2});
  ImportLimits limits;
  limits.pack = true;
  const auto report = Import(b.File(), limits);
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_THAT(report->likely_sizes, ElementsAre(1u, 1u, 2u));
}

TEST_F(ImportRunnerTest, ExternalDataLiesBesideTheFile) {
  OnnxBuilder b;
  b.Input("x", {2});
  onnx::TensorProto& tensor = b.Weight("w", {2}, {});
  tensor.clear_raw_data();
  tensor.set_data_location(onnx::TensorProto::EXTERNAL);
  auto& location = *tensor.add_external_data();
  location.set_key("location");
  location.set_value("weights.data");
  b.Node("Add", {"x", "w"}, {"y"});
  b.Output("y", {2});
  std::ofstream(folder_ / "weights.data") << "12345678";
  EXPECT_TRUE(Import(b.File()).ok());
  location.set_value("../../etc/passwd");
  EXPECT_THAT(Import(b.File()).status().message(), HasSubstr("outside"));
}

TEST_F(ImportRunnerTest, SaysWhatIsWrongInOneLine) {
  const std::string good = SmallNetwork().File();
  const absl::Status cut = Import(good.substr(0, good.size() / 2)).status();
  EXPECT_EQ(cut.code(), absl::StatusCode::kInvalidArgument);
  OnnxBuilder unsupported = SmallNetwork();
  unsupported.graph().mutable_node(2)->set_op_type("Frobnicate");
  unsupported.graph().mutable_node(5)->set_op_type("Defenestrate\n");
  const absl::Status lists = Import(unsupported.File()).status();
  EXPECT_EQ(lists.code(), absl::StatusCode::kUnimplemented);
  EXPECT_THAT(lists.message(),
              testing::AllOf(HasSubstr("Frobnicate"), HasSubstr("Defenestrate"), Not(HasSubstr("\n"))));
  ImportLimits nodes;
  nodes.nodes = 3;
  EXPECT_EQ(Import(good, nodes).status().code(), absl::StatusCode::kResourceExhausted);
}

TEST_F(ImportRunnerTest, MemoryIsLimited) {
  if (kSanitized) GTEST_SKIP() << "a sanitizer's shadow memory cannot be limited";
  OnnxBuilder b;
  b.Ints("size", {std::int64_t{1} << 27});
  b.Input("x", {1});
  std::string last = "x";
  for (int i = 0; i < 8; ++i) {
    const std::string block = "block" + std::to_string(i), sum = "sum" + std::to_string(i);
    b.Node("ConstantOfShape", {"size"}, {block});
    b.Node("Add", {last, block}, {sum});
    last = sum;
  }
  b.Output(last, {std::int64_t{1} << 27});
  ImportLimits limits;
  limits.memory = GiB(1);
  const absl::Status status = Import(b.File(), limits).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << status;
  EXPECT_THAT(status.message(), HasSubstr("memory"));
}

TEST_F(ImportRunnerTest, TimeIsLimited) {
  OnnxBuilder b;
  b.Ints("size", {std::int64_t{1} << 22});
  b.Node("ConstantOfShape", {"size"}, {"zeros"});
  b.Node("Exp", {"zeros"}, {"ones"});
  b.Node("Add", {"ones", "ones"}, {"v0"});
  // Powers of 2^30 elements, which are within the limits of folding and take many seconds.
  for (int i = 0; i < 250; ++i)
    b.Node("Pow", {"v" + std::to_string(i), "ones"}, {"v" + std::to_string(i + 1)});
  b.Input("x", {1});
  b.Node("Add", {"x", "v250"}, {"y"});
  b.Output("y", {std::int64_t{1} << 22});
  ImportLimits limits;
  limits.time = std::chrono::seconds(1);
  const absl::Status status = Import(b.File(), limits).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << status;
}

TEST_F(ImportRunnerTest, TellsHowFarItIsAndTrustsNothingOfIt) {
  std::ofstream(folder_ / "model.onnx", std::ios::binary) << SmallNetwork().File();
  ImportLimits limits;
  limits.pack = true;
  std::vector<std::string> told;
  const auto report = RunImport(program_, folder_ / "model.onnx", folder_ / "out", limits,
                                [&](const ImportProgress& progress) { told.push_back(ToLine(progress)); });
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_FALSE(told.empty());
  for (const std::string& line : told) EXPECT_TRUE(ParseProgress(line).has_value()) << line;
  // Lines of progress take no room in the report, and lines of another form are not progress.
  EXPECT_THAT(
      Pretend("yes 'progress folding 1 2' | head -n 200000; echo not a report; exit 0").status().message(),
      HasSubstr("report"));
  for (const char* line :
       {"progress", "progress folding 3 2", "progress folding -1 2", "progress dancing 1 2",
        "progress folding 1 2 3", "progress folding 1 99999999999999999999999", ""})
    EXPECT_FALSE(ParseProgress(line).has_value()) << line;
}

TEST_F(ImportRunnerTest, AChildThatHangsIsKilled) {
  ImportLimits limits;
  limits.time = std::chrono::milliseconds(50);
  const absl::Status status = Pretend("exec sleep 600", limits).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(status.message(), HasSubstr("longer"));
}

TEST_F(ImportRunnerTest, ChildrenThatEndOddly) {
  EXPECT_THAT(Pretend("kill -SEGV $$").status().message(), HasSubstr("crashed"));
  EXPECT_EQ(Pretend("kill -KILL $$").status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(Pretend("echo all is well").status().message(), HasSubstr("report"));
  EXPECT_THAT(Pretend("echo '{\"digest\": \"../../etc\"}'").status().message(), HasSubstr("report"));
  EXPECT_THAT(Pretend("exit 1").status().message(), HasSubstr("no reason"));
  EXPECT_THAT(Pretend("echo one >&2; echo two >&2; exit 3").status().message(), HasSubstr("two"));
  ImportLimits brief;
  brief.time = std::chrono::milliseconds(50);
  EXPECT_EQ(Pretend("exec yes >&2", brief).status().code(), absl::StatusCode::kResourceExhausted);
}

TEST_F(ImportRunnerTest, WhatCannotStart) {
  const auto missing = RunImport(folder_ / "absent", folder_ / "model.onnx", folder_ / "out", {});
  EXPECT_THAT(missing.status().message(), HasSubstr("cannot start"));
  const auto folder = RunImport(program_, folder_ / "model.onnx", folder_ / "nowhere", {});
  EXPECT_THAT(folder.status().message(), HasSubstr("nowhere"));
  EXPECT_EQ(RunImport(program_, folder_ / "absent.onnx", folder_ / "out", {}).status().code(),
            absl::StatusCode::kInvalidArgument);
}

TEST_F(ImportRunnerTest, TheProbeSaysWhatTheMachineLacks) {
  const auto lacking = ProbeJail(program_);
  ASSERT_TRUE(lacking.ok()) << lacking.status();
  const auto probe = [&](const std::string& script) {
    const fs::path path = folder_ / "prober";
    std::ofstream(path) << "#!/bin/sh\n" << script << "\n";
    chmod(path.c_str(), 0700);
    return ProbeJail(path);
  };
  EXPECT_EQ(*probe("echo jail"), "");
  EXPECT_EQ(*probe("echo jail lacking: namespaces"), "namespaces");
  const absl::Status missing = probe("echo jail missing: a filter").status();
  EXPECT_EQ(missing.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(missing.message(), testing::AllOf(HasSubstr("a filter"), HasSubstr("best-effort")));
  EXPECT_EQ(probe("echo nonsense").status().code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(probe("exit 0").status().code(), absl::StatusCode::kUnavailable);
}

TEST_F(ImportRunnerTest, ARefusalForWantOfAJailIsNoFaultOfTheFile) {
  EXPECT_EQ(Pretend("echo no jail >&2; exit 6").status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(Pretend("kill -SYS $$").status().message(), HasSubstr("jail"));
}

TEST(ImportReport, JsonThereAndBack) {
  ImportReport report;
  report.digest = std::string(64, 'a');
  report.name = "quotes \" and\nlines";
  proto::TensorSpec& spec = report.inputs.emplace_back();
  spec.set_name("x");
  spec.set_type(proto::BF16);
  spec.add_shape(-1);
  report.weights = Bytes(12);
  report.steps = 3;
  report.stage = 2;
  report.stages = 2;
  report.model_outputs = {"a \"name\"", "b"};
  const std::string line = ToJson(report);
  EXPECT_THAT(line, Not(HasSubstr("\n")));
  const auto back = ParseReport(line);
  ASSERT_TRUE(back.ok()) << back.status();
  EXPECT_EQ(ToJson(*back), line);
  EXPECT_FALSE(ParseReport(line.substr(0, 40)).ok());
  EXPECT_FALSE(ParseReport("[]").ok());
  report.likely_rows = {4};
  EXPECT_EQ(ParseReport(ToJson(report))->likely_rows, report.likely_rows);
  for (const std::vector<std::uint32_t>& wrong : {std::vector<std::uint32_t>{0}, {4, 4}}) {
    report.likely_rows = wrong;
    EXPECT_FALSE(ParseReport(ToJson(report)).ok());
  }
  report.likely_rows.clear();
  for (const std::uint32_t stages : {0U, 1U, proto::kMostStages + 1}) {
    report.stages = stages;
    EXPECT_FALSE(ParseReport(ToJson(report)).ok()) << stages;
  }
}

TEST(ImportReport, ThoseOfStagesComeInOrderAndAllOfThem) {
  const auto line = [](std::uint32_t stage, std::uint32_t stages) {
    ImportReport report;
    report.digest = std::string(64, 'a');
    report.stage = stage;
    report.stages = stages;
    return ToJson(report) + "\n";
  };
  EXPECT_EQ(ParseReports(line(1, 1))->size(), 1);
  EXPECT_EQ(ParseReports(line(1, 2) + line(2, 2))->size(), 2);
  for (const auto& wrong : {std::string(), line(1, 2), line(2, 2) + line(1, 2), line(1, 2) + line(2, 3),
                            line(1, 1) + line(1, 1), line(1, 2) + line(2, 2) + "more"})
    EXPECT_FALSE(ParseReports(wrong).ok()) << wrong;
}

}  // namespace
}  // namespace troupe::gpu::test
