// troupe-import: one ONNX file in, canonical files out, in a jail of limits; then it exits.
#include <fcntl.h>
#include <omp.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <filesystem>
#include <new>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "base/enum_names.hpp"
#include "base/status.hpp"
#include "gpu/engine/plan.hpp"
#include "gpu/import/canonical_files.hpp"
#include "gpu/import/cuda_check.hpp"
#include "gpu/import/import_model.hpp"
#include "gpu/import/import_report.hpp"
#include "gpu/import/likely_inputs.hpp"
#include "gpu/import/model_archive.hpp"
#include "gpu/import/small_weights.hpp"
#include "gpu/jail/jail.hpp"
#include "proto/precision.hpp"

namespace {

using namespace troupe;
using namespace troupe::gpu;
namespace fs = std::filesystem;

struct Options {
  std::string onnx;
  std::string output;
  std::string memory_limit = "4GiB";
  std::string time_limit = "60s";
  std::size_t limit_nodes = 100'000;
  ImportSandbox sandbox = ImportSandbox::kRequired;
  bool pack = false;
  bool check = false;  // write nothing
  proto::Precision precision = proto::PRECISION_FP32;
  proto::StageBounds stages;
};

// Where one model goes.
struct OutputFiles {
  CanonicalDescriptors canonical;
  CanonicalDescriptors packed;
};

// Everything that an import reads and writes, opened before the jail.
struct Files {
  std::span<const std::byte> onnx;
  OpenedFiles beside;
  std::vector<OutputFiles> output;  // of each stage that there may be
};

fs::path FolderOf(const Options& options) {
  const fs::path folder = fs::path(options.onnx).parent_path();
  return folder.empty() ? fs::path(".") : folder;
}

// The file as mapped memory: its pages are not counted twice, and never written.
absl::StatusOr<std::span<const std::byte>> Map(const std::string& path) {
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  struct stat info {};
  if (fd < 0 || fstat(fd, &info) != 0)
    return absl::InvalidArgumentError(absl::StrCat("cannot read '", path, "': ", std::strerror(errno)));
  if (!S_ISREG(info.st_mode)) return absl::InvalidArgumentError(absl::StrCat("'", path, "' is not a file"));
  const auto size = static_cast<std::size_t>(info.st_size);
  if (size == 0) return std::span<const std::byte>();
  void* memory = mmap(nullptr, size, PROT_READ, MAP_PRIVATE, fd, 0);
  close(fd);
  if (memory == MAP_FAILED)
    return absl::ResourceExhaustedError(
        absl::StrCat("the ONNX file of ", FormatBytes(Bytes(size)), " does not fit the memory limit"));
  return std::span(static_cast<const std::byte*>(memory), size);
}

absl::StatusOr<fs::path> MakeFolder(const fs::path& folder) {
  std::error_code error;
  fs::create_directory(folder, error);
  if (error)
    return absl::InternalError(absl::StrCat("cannot make '", folder.string(), "': ", error.message()));
  return folder;
}

absl::StatusOr<OutputFiles> OpenOutput(const fs::path& folder, bool pack) {
  OutputFiles files;
  TROUPE_ASSIGN_OR_RETURN(files.canonical, OpenCanonical(folder));
  if (!pack) return files;
  TROUPE_ASSIGN_OR_RETURN(const fs::path packed, MakeFolder(folder / kPackedFolder));
  TROUPE_ASSIGN_OR_RETURN(files.packed, OpenCanonical(packed));
  return files;
}

// Of all that was sent.
Bytes SizeOf(const Files& files) {
  Bytes size(files.onnx.size());
  for (const auto& [path, bytes] : files.beside) size += Bytes(bytes.size());
  return size;
}

// More stages than the model can have: its weights are in the file, twice as wide at most, or are computed of constants. Two stages
// that follow each other have more than two thirds of what one may have.
std::uint32_t MostStages(const proto::StageBounds& bounds, Bytes sent) {
  const std::uint64_t weights = sent.count() * 2 + FoldLimits().bytes.count();
  if (weights <= bounds.above.count() || bounds.most == Bytes()) return 1;
  return static_cast<std::uint32_t>(
      std::min<std::uint64_t>(weights / bounds.most.count() * 3 + 3, proto::kMostStages));
}

absl::StatusOr<Files> OpenFiles(const Options& options) {
  Files files;
  TROUPE_ASSIGN_OR_RETURN(files.onnx, Map(options.onnx));
  files.beside = OpenFilesOf(FolderOf(options));
  if (options.check) return files;
  if (!options.stages.any()) {
    TROUPE_ASSIGN_OR_RETURN(files.output.emplace_back(), OpenOutput(options.output, options.pack));
    return files;
  }
  // How many stages there are is known in the jail, where no file can be opened.
  const std::uint32_t most = MostStages(options.stages, SizeOf(files));
  for (std::uint32_t stage = 1; stage <= most; ++stage) {
    TROUPE_ASSIGN_OR_RETURN(const fs::path folder, MakeFolder(fs::path(options.output) / StageFolder(stage)));
    TROUPE_ASSIGN_OR_RETURN(files.output.emplace_back(), OpenOutput(folder, options.pack));
  }
  return files;
}

void Tell(ImportProgress::Stage stage, std::uint64_t steps, std::uint64_t total) {
  std::printf("%s\n", ToLine({stage, steps, total}).c_str());
  std::fflush(stdout);
}

// A hundred lines at most for each pass over the file's steps.
void TellFolding(std::uint64_t steps, std::uint64_t total) {
  const std::uint64_t stride = total / 100 + 1;
  if (steps % stride == 0) Tell(ImportProgress::Stage::kFolding, steps, total);
}

// From here on what is packed goes to the file weight by weight, and is not held.
constexpr Bytes kPackedInMemory = MiB(256);

absl::StatusOr<std::string> PackFor(const ImportedModel& imported, const InputSpecs& inputs,
                                    const CanonicalDescriptors& files) {
  if (Bytes(imported.blob().size()) <= kPackedInMemory) {
    TROUPE_ASSIGN_OR_RETURN(const auto packed, PackModel(imported.model, imported.blob(), inputs));
    return WriteCanonical(files, packed.model, packed.weights);
  }
  // What was written for inputs that turn out not to fit could not be taken back.
  TROUPE_RETURN_IF_ERROR(FitsInputs(imported.model, imported.blob(), inputs));
  WeightsFile output(files.weights);
  TROUPE_ASSIGN_OR_RETURN(const auto packed, PackModel(imported.model, imported.blob(), inputs, &output));
  return WriteModelFile(files, packed.model);
}

// Other shapes than those that it was packed for stay correct.
absl::Status Pack(const ImportedModel& imported, const CanonicalDescriptors& files, ImportReport& report) {
  return ForLikelyInputs(imported, [&](const InputSpecs& inputs) -> absl::Status {
    TROUPE_ASSIGN_OR_RETURN(report.packed_digest, PackFor(imported, inputs, files));
    report.likely_sizes = LikelySizes(imported, inputs);
    report.likely_rows = LikelyRows(imported);
    return absl::OkStatus();
  });
}

// What only a judged file's report has.
void Judge(const ImportedModel& imported, ImportReport& report) {
  for (const proto::Step& step : imported.model.steps()) ++report.operators[step.op()];
  const absl::Status judged = ForLikelyInputs(imported, [&](const InputSpecs& inputs) -> absl::Status {
    TROUPE_ASSIGN_OR_RETURN(report.cuda_refused, CudaRefusals(imported.model, imported.blob(), inputs));
    return absl::OkStatus();
  });
  report.cuda_unknown = std::string(judged.message());
}

// Writes one model and prints its report.
absl::Status Write(const Options& options, const Files& files, const ImportedModel& imported) {
  if (!options.check && imported.stage > files.output.size())
    return absl::InternalError(
        absl::StrCat("the model has ", imported.stages, " stages, and ", files.output.size(),
                     " at most were expected of its size; please report it with the file"));
  ImportReport report;
  if (options.check) {
    Judge(imported, report);
  } else {
    TROUPE_ASSIGN_OR_RETURN(report.digest,
                            WriteModelFile(files.output[imported.stage - 1].canonical, imported.model));
  }
  if (options.pack) {
    const bool divided = imported.stages > 1;
    Tell(ImportProgress::Stage::kPacking, divided ? imported.stage - 1 : 0, divided ? imported.stages : 0);
    TROUPE_RETURN_IF_ERROR(Pack(imported, files.output[imported.stage - 1].packed, report));
  }
  report.name = imported.model.name();
  report.inputs = {imported.model.inputs().begin(), imported.model.inputs().end()};
  report.outputs = {imported.model.outputs().begin(), imported.model.outputs().end()};
  report.weights = Bytes(imported.model.weights_bytes());
  report.steps = static_cast<std::uint64_t>(imported.model.steps_size());
  report.stage = imported.stage;
  report.stages = imported.stages;
  report.model_outputs = imported.model_outputs;
  std::printf("%s\n", ToJson(report).c_str());
  return absl::OkStatus();
}

absl::Status Import(const Options& options, const Files& files) {
  TROUPE_ASSIGN_OR_RETURN(const ModelArchive archive, OpenModelArchive(files.onnx));
  ImportOptions import;
  if (archive.files.empty()) import.folder = FolderOf(options);
  import.opened = archive.files.empty() ? files.beside : archive.files;
  import.max_nodes = options.limit_nodes;
  import.max_weights = std::max(import.max_weights, SizeOf(files));
  import.precision = options.precision;
  import.on_folding = TellFolding;
  SmallWeights small;
  std::optional<WeightsFile> output;  // of the stage that is being written
  const auto weights_of = [&](std::uint32_t stage) -> WeightsOutput* {
    if (options.check) return &small;
    if (stage > files.output.size()) return nullptr;  // Write refuses it
    return &output.emplace(files.output[stage - 1].canonical.weights);
  };
  Tell(ImportProgress::Stage::kChecking, 0, 0);
  return ImportStages(archive.onnx, import, options.stages,
                      {.weights = weights_of,
                       .take = [&](const ImportedModel& stage) { return Write(options, files, stage); }});
}

int Fail(const absl::Status& status) {
  const std::string line = absl::StrReplaceAll(std::string(status.message()), {{"\n", " "}, {"\r", " "}});
  std::fprintf(stderr, "troupe-import: %s\n", line.c_str());
  return static_cast<int>(ExitOf(status));
}

int Usage(const std::string& message) {
  std::fprintf(stderr, "troupe-import: %s\n", message.c_str());
  return static_cast<int>(ImportExit::kUsage);
}

// RLIMIT_CPU's soft limit comes as this signal: a handler can only write and leave.
void OnOverTime(int) {
  constexpr char kMessage[] = "troupe-import: the import took more processor time than its limit\n";
  (void)!write(STDERR_FILENO, kMessage, sizeof(kMessage) - 1);
  _exit(static_cast<int>(ImportExit::kLimits));
}

// Where an allocation fails, nothing can be trusted to clean up; the process was made to be thrown away.
void OnOutOfMemory() {
  constexpr char kMessage[] = "troupe-import: the import needs more memory than its limit\n";
  (void)!write(STDERR_FILENO, kMessage, sizeof(kMessage) - 1);
  _exit(static_cast<int>(ImportExit::kLimits));
}

absl::Status EnterJail(const JailLimits& limits, const Options& options) {
  omp_set_num_threads(1);  // the jail starts no thread
  TROUPE_ASSIGN_OR_RETURN(const JailReport report, EnterImportJail(limits));
  if (report.holds() || options.sandbox == ImportSandbox::kBestEffort) return absl::OkStatus();
  return absl::FailedPreconditionError(NoJail(report.Missing()));
}

// One line of what the kernel lacks, "missing: " or "lacking: " before it; an empty one when all is there.
int ProbeJail() {
  const auto report = EnterImportJail({});
  if (!report.ok()) return Fail(report.status());
  const char* const what = !report->holds() ? "missing: " : report->lacking.empty() ? "" : "lacking: ";
  std::printf("jail %s%s\n", what, (report->holds() ? report->Lacking() : report->Missing()).c_str());
  std::fflush(stdout);
  return 0;
}

int Run(const Options& options) {
  JailLimits limits;
  if (!ParseBytes(options.memory_limit, limits.memory))
    return Usage(absl::StrCat("--memory-limit '", options.memory_limit,
                              "' is not a valid size; say for example 4GiB"));
  if (!ParseDuration(options.time_limit, limits.time) || limits.time <= Duration::zero())
    return Usage(
        absl::StrCat("--time-limit '", options.time_limit, "' is not a valid time; say for example 60s"));
  std::error_code error;
  if (options.check && (options.pack || !options.output.empty()))
    return Usage("--check writes nothing; leave --output and --pack away");
  if (!options.check && !fs::is_directory(options.output, error))
    return Usage(absl::StrCat("--output '", options.output, "' is not a folder; make it first"));
  std::set_new_handler(OnOutOfMemory);
  signal(SIGXCPU, OnOverTime);
  signal(SIGXFSZ, SIG_IGN);  // write() fails with EFBIG instead
  const auto files = OpenFiles(options);
  if (!files.ok()) return Fail(files.status());
  // What is read, and as much again for the weights as they are written, and as they are packed.
  limits.mapped = SizeOf(*files) * 3;
  if (const absl::Status jailed = EnterJail(limits, options); !jailed.ok()) return Fail(jailed);
  try {
    const auto imported = Import(options, *files);
    return imported.ok() ? 0 : Fail(imported);
  } catch (const std::exception& e) {
    return Fail(absl::InternalError(e.what()));
  }
}

}  // namespace

int main(int argc, char** argv) {
  CloseInherited();
  CLI::App app("Turns an ONNX file into canonical weights and an execution plan, within limits.",
               "troupe-import");
  Options options;
  app.add_option("--onnx", options.onnx, "ONNX file; external data may lie in its folder")->required();
  app.add_option("--output", options.output, "existing folder for model.pb and weights.bin");
  app.add_option("--memory-limit", options.memory_limit, "most memory to use")->capture_default_str();
  app.add_option("--time-limit", options.time_limit, "most processor time to use")->capture_default_str();
  app.add_option("--limit-nodes", options.limit_nodes, "most nodes of a graph")->capture_default_str();
  app.add_option_function<std::string>(
         "--sandbox",
         [&](const std::string& name) {
           options.sandbox = FindNamed(kImportSandboxes, name).value_or(options.sandbox);
         },
         "required, or best-effort: import also where no jail holds")
      ->check(CLI::IsMember(NameList(kImportSandboxes)))
      ->default_str(std::string(NameIn(kImportSandboxes, options.sandbox)));
  app.add_flag_callback(
      "--probe-jail", [] { std::exit(ProbeJail()); },
      "enter the jail, print what the kernel lacks, and exit");
  app.add_flag("--check", options.check, "judge the file and write nothing; the report has its operators");
  app.add_flag("--pack", options.pack, "also write the model packed for this machine, to OUTPUT/packed");
  app.add_option_function<std::string>(
         "--precision",
         [&](const std::string& name) {
           options.precision = proto::PackedIn(proto::ParsePrecision(name).value_or(options.precision));
         },
         "bf16: pack the weights of products and convolutions in BF16 where this machine computes with them")
      ->check(CLI::IsMember(NameList(proto::kPrecisions)))
      ->default_str(std::string(proto::Name(options.precision)));
  const auto add_size = [&](const char* name, Bytes& size, const char* help) {
    app.add_option_function<std::uint64_t>(
        name, [&size](std::uint64_t bytes) { size = Bytes(bytes); }, help);
  };
  add_size(
      "--stage-above", options.stages.above,
      "bytes of weights above which a model is divided into stages, each in a folder of its own; 0: it is not");
  add_size("--stage-most", options.stages.most, "bytes of weights that a stage has at most");
  app.add_flag_callback(
      "--pack-target",
      [] {
        std::printf("%s\n", PackTarget().c_str());
        std::exit(0);
      },
      "print what --pack packs for on this machine, and exit");
  app.footer(
      "Prints one line of JSON for each stage. Exit codes: 0 imported, 2 bad usage, 3 bad model, 4 unsupported, 5 over a "
      "limit, 6 no jail.");
  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp& help) {
    return app.exit(help);
  } catch (const CLI::ParseError& error) {
    return Usage(error.what());
  }
  return Run(options);
}
