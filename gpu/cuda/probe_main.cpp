// troupe-gpu-probe: what a machine's driver, GPU and libraries can do, before a daemon is started on it.
#include <google/protobuf/struct.pb.h>
#include <google/protobuf/util/json_util.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <string>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "gpu/cuda/probe.hpp"
#include "gpu/nvml/management.hpp"
#include "gpu/worker/exit_codes.hpp"

namespace troupe::gpu::cuda {
namespace {

constexpr int kUsage = 2;
constexpr int kNotWritten = 1;

void Add(google::protobuf::Struct& object, const std::string& key, const std::string& value) {
  (*object.mutable_fields())[key].set_string_value(value);
}

// {"device", "trouble", "why", "facts": [{"part", "name", "value"}], "uses": []}
std::string JsonOf(const std::string& device, const Probed& probed) {
  google::protobuf::Struct all;
  Add(all, "device", device);
  Add(all, "trouble", Name(probed.trouble));
  Add(all, "why", probed.why);
  auto& facts = *(*all.mutable_fields())["facts"].mutable_list_value();
  for (const ProbeFact& fact : probed.facts) {
    auto& entry = *facts.add_values()->mutable_struct_value();
    Add(entry, "part", fact.part);
    Add(entry, "name", fact.name);
    Add(entry, "value", fact.value);
  }
  auto& uses = *(*all.mutable_fields())["uses"].mutable_list_value();
  for (const std::string& use : probed.uses) uses.add_values()->set_string_value(use);
  std::string json;
  google::protobuf::util::JsonPrintOptions options;
  options.add_whitespace = true;
  (void)google::protobuf::util::MessageToJsonString(all, &json, options);
  return json;
}

// What only the management library knows: a GPU in parts, and who holds its memory.
void AddManagement(int ordinal, Probed& probed) {
  const auto management = GpuManagement::OpenAsProgramsDo();
  if (!management.ok()) {
    probed.facts.push_back({"management library", "NVML", std::string(management.status().message())});
    return;
  }
  const auto gpu = static_cast<std::uint32_t>(ordinal);
  if (gpu >= (*management)->gpus()) return;
  const std::string problem = (*management)->Problem(gpu);
  probed.facts.push_back({"management library", "health", problem.empty() ? "well" : problem});
  const std::string parts = WhyInParts(ordinal);
  probed.facts.push_back(
      {"management library", "instances (MIG)", parts.empty() ? "none" : "it is cut into them"});
  if (!parts.empty()) {
    probed.trouble = CudaTrouble::kTaken;
    probed.why = absl::StrCat(Name(CudaTrouble::kTaken), ": ", parts);
  }
  if (const auto holders = (*management)->Holders(gpu); holders.ok() && !holders->empty())
    probed.facts.push_back({"management library", "memory is held by", Describe(*holders)});
}

int Main(const std::string& device, const std::string& json) {
  CudaOptions options;
  options.name = device;
  if (const char* const driver = std::getenv("TROUPE_CUDA_DRIVER")) options.driver = driver;
  if (!absl::SimpleAtoi(absl::StripPrefix(device, "cuda:"), &options.ordinal) || options.ordinal < 0) {
    std::fprintf(stderr, "troupe-gpu-probe: --device %s: must be a number of a GPU such as cuda:0\n",
                 device.c_str());
    return kUsage;
  }
  // As workers count GPUs: in the order of the bus.
  (void)setenv("CUDA_DEVICE_ORDER", "PCI_BUS_ID", 1);
  Probed probed = ProbeDevice(options);
  AddManagement(options.ordinal, probed);
  for (const ProbeFact& fact : probed.facts)
    std::printf("%-18s %-44s %s\n", fact.part.c_str(), fact.name.c_str(), fact.value.c_str());
  for (const std::string& use : probed.uses) std::printf("%s\n", use.c_str());
  if (!json.empty()) {
    std::ofstream file(json);
    file << JsonOf(device, probed) << "\n";
    file.close();
    if (!file) {
      std::fprintf(stderr, "troupe-gpu-probe: --json %s cannot be written\n", json.c_str());
      return kNotWritten;
    }
  }
  if (probed.trouble != CudaTrouble::kNone)
    std::fprintf(stderr, "troupe-gpu-probe: %s\n", probed.why.c_str());
  return ExitCodeOf(probed.trouble);
}

}  // namespace
}  // namespace troupe::gpu::cuda

int main(int argc, char** argv) {
  std::string device = "cuda:0";
  std::string json;
  CLI::App app(
      "Says what the driver, one GPU and the libraries of this machine can do, and what Troupe would use of it.",
      "troupe-gpu-probe");
  app.add_option("--device", device, "cuda:N of the driver's GPUs")->capture_default_str();
  app.add_option("--json", json, "file for the same facts, to be attached to a report");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : troupe::gpu::cuda::kUsage;
  }
  return troupe::gpu::cuda::Main(device, json);
}
