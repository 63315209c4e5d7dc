#include "bench/device_bed.hpp"

#include <algorithm>
#include <cmath>
#include <iostream>

#include "bench/model_files.hpp"
#include "gpu/engine/plan.hpp"
#include "gpu/import/import_model.hpp"

namespace troupe::gpu::bench {
namespace {

// The weights in the order in which the steps read them: the first step waits for the first of them.
std::uint64_t FirstWeights(const proto::Model& model) {
  std::uint64_t end = 0;
  for (const proto::Weight& weight : model.weights()) {
    if (std::ranges::find(model.steps(0).inputs(), weight.name()) != model.steps(0).inputs().end())
      end = std::max(end, weight.offset() + weight.length());
  }
  return end;
}

}  // namespace

Bed::Bed(BedOptions options) : options_(std::move(options)) {
  // Packed weights may take somewhat more than the file.
  Bytes host = MiB(64);
  Bytes device;
  for (const std::string& file : options_.networks) {
    const std::uint64_t size = std::filesystem::file_size(file);
    host += Bytes(size + size / 2);
    device = std::max(device, Bytes(size + size / 2));
  }
  device = AlignUp(device * (options_.together + 1) + options_.spare, MiB(2));
  site_ = std::make_unique<Site>(AlignUp(host, MiB(2)), real() ? Bytes(0) : device);
  if (!real()) links_ = Value(CreateNodeLinks(1, {options_.link * 1e9}), "links");
  for (const std::string& file : options_.networks) Load(file);
}

void Bed::Load(const std::string& file) {
  ImportedModel imported = Value(ImportOnnx(ReadFile(file), {}), file.c_str());
  const auto inputs = ConcreteInputs(imported.model);
  const std::string name = std::filesystem::path(file).stem();
  if (!real()) {  // a GPU takes the weights as they are
    PackedModel packed = Value(PackModel(imported.model, imported.weights, inputs), "packing");
    imported.model = std::move(packed.model);
    imported.weights = std::move(packed.weights);
  }
  networks_.push_back({name,
                       {*site_, name, imported.model, site_->Place(imported.weights), inputs},
                       FirstWeights(imported.model)});
}

Bytes Bed::largest() const {
  Bytes most;
  for (const Network& network : networks_) most = std::max(most, Bytes(network.model.weights));
  return most;
}

Bytes Bed::ActivationsOf(const Network& network) {
  const auto rig = Start({}, Bytes(network.model.weights) + options_.spare);
  return Bytes(rig->Ask(network.model.prepare).prepared().activation_bytes());
}

std::unique_ptr<Rig> Bed::Start(WorkerCommand command, Bytes quota) {
  command.device = options_.device;
  command.quota = AlignUp(quota, MiB(2));
  if (!real()) return std::make_unique<Rig>(*site_, command, links_, site_->memory());
  return std::make_unique<Rig>(*site_, command, AdoptionGifts{site_->host().fd(), -1, -1});
}

void Sample(const std::string& name) {
  std::printf("sample %s\n", name.c_str());
  (void)std::fflush(stdout);
  std::string line;
  (void)std::getline(std::cin, line);
}

void Note(const std::string& text) {
  std::printf("note %s\n", text.c_str());
  (void)std::fflush(stdout);
}

double Percentile(std::vector<double> values, double percent) {
  TROUPE_CHECK(!values.empty(), "nothing was measured");
  std::ranges::sort(values);
  const auto rank = static_cast<std::size_t>(std::ceil(static_cast<double>(values.size()) * percent / 100));
  return values[std::max<std::size_t>(rank, 1) - 1];
}

double Median(std::vector<double> values) {
  return Percentile(std::move(values), 50);
}

}  // namespace troupe::gpu::bench
