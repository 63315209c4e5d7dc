#include <cstring>
#include <vector>

#include "base/check.hpp"
#include "base/status.hpp"
#include "gpu/engine/memory_planner.hpp"
#include "gpu/engine/program.hpp"

namespace troupe::gpu {
namespace {

// Moves bytes that could not be produced where they are wanted: an input or a weight that is an output, or
// one value that is two outputs.
class CopyKernel final : public Kernel {
 public:
  absl::Status Run(std::span<const TensorView> in, std::span<TensorView> out, std::byte*) const override {
    out[0].shape = in[0].shape;
    std::size_t bytes = CellSize(in[0].type);
    for (std::int64_t dim : in[0].shape) bytes *= static_cast<std::size_t>(dim);
    if (bytes > 0) std::memcpy(out[0].data, in[0].data, bytes);
    return absl::OkStatus();
  }
};

constexpr std::size_t kUnclaimed = static_cast<std::size_t>(-1);

// When each root's bytes are live, and which model output they are.
class Layout {
 public:
  explicit Layout(Program& program) : program_(program), claims_(program.values.size(), kUnclaimed) {}

  void Run() {
    ClaimOutputs();
    MeasureLives();
    ShareInPlace();
    PlaceAll();
  }

 private:
  ProgramValue& At(int id) { return program_.values[static_cast<std::size_t>(id)]; }
  int Root(int id) {
    while (At(id).root != id) id = At(id).root;
    return id;
  }
  std::size_t& Claim(int root) { return claims_[static_cast<std::size_t>(root)]; }

  void ClaimOutputs() {
    for (std::size_t o = 0; o < program_.outputs.size(); ++o) {
      int root = Root(program_.outputs[o]);
      if (At(root).place != Place::kActivation || Claim(root) != kUnclaimed) root = AppendCopy(o);
      Claim(root) = o;
    }
  }

  int AppendCopy(std::size_t o) {
    ProgramValue copy = At(program_.outputs[o]);
    copy.info.constant = nullptr;
    copy.place = Place::kActivation;
    copy.root = static_cast<int>(program_.values.size());
    Instruction instruction;
    instruction.label = "Copy to output '" + program_.output_specs[o].name() + "'";
    instruction.kernel = std::make_unique<CopyKernel>();
    instruction.inputs = {program_.outputs[o]};
    instruction.outputs = {copy.root};
    program_.instructions.push_back(std::move(instruction));
    program_.outputs[o] = copy.root;
    claims_.push_back(kUnclaimed);
    const int id = copy.root;
    program_.values.push_back(std::move(copy));
    return id;
  }

  void MeasureLives() {
    lives_.resize(program_.values.size());
    for (std::size_t t = 0; t < program_.instructions.size(); ++t) {
      for (int id : program_.instructions[t].outputs) {
        if (id != kAbsent) lives_[static_cast<std::size_t>(Root(id))] = {At(Root(id)).size, t, t};
      }
      for (int id : program_.instructions[t].inputs) {
        if (id != kAbsent) lives_[static_cast<std::size_t>(Root(id))].last = t;
      }
    }
    // Elements of later values may point at the texts that a step made.
    for (std::size_t id = 0; id < program_.values.size(); ++id)
      if (program_.values[id].info.makes_texts && program_.values[id].root == static_cast<int>(id))
        lives_[id].last = program_.instructions.size();
    for (int id : program_.outputs)
      lives_[static_cast<std::size_t>(Root(id))].last = program_.instructions.size();
  }

  // The output of instruction t may take over the bytes of input `id` when no later instruction reads them.
  bool MayReplace(std::size_t t, std::size_t input) {
    const Instruction& instruction = program_.instructions[t];
    const int id = instruction.inputs[input];
    const int output = instruction.outputs.empty() ? kAbsent : instruction.outputs[0];
    if (id == kAbsent || output == kAbsent || At(Root(id)).place != Place::kActivation) return false;
    if (lives_[static_cast<std::size_t>(Root(id))].last != t || At(output).size != At(Root(id)).size)
      return false;
    for (std::size_t i = 0; i < instruction.inputs.size(); ++i) {
      const int other = instruction.inputs[i];
      if (i != input && other != kAbsent && Root(other) == Root(id)) return false;
    }
    return true;
  }

  void ShareInPlace() {
    for (std::size_t t = 0; t < program_.instructions.size(); ++t) {
      const int input = program_.instructions[t].kernel->in_place_input();
      if (input < 0 || static_cast<std::size_t>(input) >= program_.instructions[t].inputs.size()) continue;
      if (!MayReplace(t, static_cast<std::size_t>(input))) continue;
      const int root = Root(program_.instructions[t].inputs[static_cast<std::size_t>(input)]);
      const int output = program_.instructions[t].outputs[0];
      At(output).root = root;
      lives_[static_cast<std::size_t>(root)].last = lives_[static_cast<std::size_t>(output)].last;
      Claim(root) = Claim(output);
    }
  }

  void PlaceAll() {
    std::vector<BufferLife> buffers;
    std::vector<std::uint64_t*> positions;
    for (std::size_t id = 0; id < program_.values.size(); ++id) {
      ProgramValue& value = program_.values[id];
      if (value.place != Place::kActivation || value.root != static_cast<int>(id)) continue;
      if (claims_[id] != kUnclaimed) {
        value.place = Place::kOutput;
        value.position = claims_[id];
        continue;
      }
      buffers.push_back(lives_[id]);
      positions.push_back(&value.position);
    }
    for (std::size_t t = 0; t < program_.instructions.size(); ++t) {
      buffers.push_back({program_.instructions[t].kernel->scratch(), t, t});
      positions.push_back(&program_.instructions[t].scratch);
    }
    const MemoryPlacement placement = PlaceBuffers(buffers);
    for (std::size_t i = 0; i < buffers.size(); ++i) *positions[i] = placement.offsets[i];
    program_.activation_bytes = placement.size;
    program_.activation_extents = Extents(buffers, placement, program_.instructions.size());
    program_.step_activations = LiveBytes(buffers, program_.instructions.size());
    for (std::size_t id = 0; id < program_.values.size(); ++id) {
      const int root = Root(static_cast<int>(id));
      program_.values[id].place = At(root).place;
      program_.values[id].position = At(root).position;
    }
  }

  Program& program_;
  std::vector<std::size_t> claims_;  // per value that is a root: the model output that its bytes are
  std::vector<BufferLife> lives_;    // per value that is a root
};

}  // namespace

void LayOut(Program& program) {
  Layout(program).Run();
}

}  // namespace troupe::gpu
