// PROGRAM: what a plan is while it is being made: values, and instructions over them, before memory is laid
// out.
//
//   ProgramBuilder -> Program (values know their shapes, layouts and origin) -> LayOut (memory by lifetime)
//   -> CpuPlan
//
// For gpu/engine, and for devices that make kernels of their own.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/units.hpp"
#include "gpu/ops/operator.hpp"
#include "proto/model.pb.h"

namespace troupe::gpu {

// Row-major bytes that the plan itself holds (folded shape arithmetic); 64-byte aligned.
class AlignedBytes {
 public:
  explicit AlignedBytes(std::size_t size);
  [[nodiscard]] std::byte* data() const { return data_.get(); }

 private:
  struct Free {
    void operator()(std::byte* data) const;
  };
  std::unique_ptr<std::byte[], Free> data_;
};

// Where a value's bytes are during a run.
enum class Place { kNone, kInput, kWeights, kConstant, kActivation, kOutput };

inline constexpr int kAbsent = -1;  // value id of an absent input or output

struct ProgramValue {
  ValueInfo info;
  Bytes size;
  Place place = Place::kNone;
  // kInput, kOutput, kConstant: which. kWeights: offset in the blob. kActivation: offset in activation
  // memory.
  std::uint64_t position = 0;
  int root =
      kAbsent;  // the value whose bytes these are: itself, or the one it is a view of or replaced in place
};

struct Instruction {
  std::string label;  // "Conv 'conv1'", for errors
  std::unique_ptr<Kernel> kernel;
  std::vector<int> inputs;
  std::vector<int> outputs;
  std::uint64_t scratch = 0;  // offset in activation memory
};

struct Program {
  std::vector<ProgramValue> values;
  std::vector<Instruction> instructions;
  std::vector<int> outputs;  // per model output, the value whose bytes it is
  // Per model output: of BYTES the value with its elements, whose texts were collected in the value above; else kAbsent.
  std::vector<int> output_texts;
  std::vector<proto::TensorSpec> output_specs;
  std::vector<AlignedBytes> constants;
  Bytes activation_bytes;
  std::vector<Bytes> step_activations;    // per instruction: what is live while it runs
  std::vector<Bytes> activation_extents;  // per instruction: what it and those behind it reach up to
  int threads = 1;
};

// Lays out activation memory: views, in-place outputs, model outputs written where they are wanted, the rest
// by lifetime. Appends the copies that no sharing can avoid.
void LayOut(Program& program);

}  // namespace troupe::gpu
