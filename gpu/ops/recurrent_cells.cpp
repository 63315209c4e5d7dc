// LSTM, GRU, RNN: one direction at a time, and in it all sequences of the batch together, step by step; sequences of
// several lengths one after the other.
//
// What the inputs contribute does not depend on the steps before, so it is computed for many steps at once.
#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "gpu/ops/families.hpp"
#include "gpu/ops/inner_kernel.hpp"
#include "gpu/ops/parallel_ranges.hpp"
#include "gpu/ops/recurrent.hpp"
#include "gpu/ops/recurrent_gates.hpp"
#include "gpu/ops/recurrent_rows.hpp"

namespace troupe::gpu {

namespace {

// Inputs and outputs.
constexpr std::size_t kX = 0, kW = 1, kR = 2, kBias = 3, kLengths = 4, kFirstH = 5, kFirstC = 6,
                      kPeepholes = 7;
constexpr std::size_t kLastH = 1, kLastC = 2;
// What the gates of the steps that are computed ahead may take, so that they stay in a core's cache.
constexpr std::int64_t kAheadElements = 65536;

using Kind = RecurrentActivation::Kind;

// Where a run's working memory is, in the kernel's scratch.
struct Memory {
  explicit Memory(const Recurrent& r)
      : steps(
            std::clamp<std::int64_t>(kAheadElements / std::max<std::int64_t>(1, r.batch * r.gates * r.hidden),
                                     1, std::max<std::int64_t>(1, r.steps))) {
    const std::int64_t all = r.batch * r.hidden;
    gates = parts.AddFloats(steps * r.gates * all);
    recurrent = parts.AddFloats(r.gates * all);
    past = parts.AddFloats(all);
    h = parts.AddFloats(all);
    c = parts.AddFloats(all);
  }
  std::int64_t steps;  // that are computed ahead
  ScratchParts parts;
  std::uint64_t gates = 0, recurrent = 0, past = 0, h = 0, c = 0;
};

// One direction's parameters, and its working memory.
struct Cell {
  const Recurrent& r;
  MultiplyRows multiply;
  const GateLoops& loops;
  const RecurrentActivation* act;
  const float* w;
  const float* recurrence;
  const float* bias;      // [2 * gates * hidden] or null
  const float* peephole;  // LSTM: [3 * hidden] or null
  float* gates;           // of the steps ahead: [steps, sequences, gates * hidden]
  float* recurrent;       // GRU: [sequences, gates * hidden]
  float* past;            // GRU: [sequences, hidden]
  float* h;               // [sequences, hidden]
  float* c;               // LSTM, the same
  [[nodiscard]] std::int64_t rows() const { return r.gates * r.hidden; }
  [[nodiscard]] float Clip(float x) const { return r.clip > 0 ? std::clamp(x, -r.clip, r.clip) : x; }
  [[nodiscard]] const float* recurrent_bias() const { return bias == nullptr ? nullptr : bias + rows(); }
  // Sigmoids and hyperbolic tangents, and nothing else to look at.
  [[nodiscard]] bool usual() const {
    return r.clip <= 0 && !r.input_forget && peephole == nullptr && act[0].kind == Kind::kSigmoid &&
           act[1].kind == Kind::kTanh && (r.per_direction < 3 || act[2].kind == Kind::kTanh);
  }
};

void AddBias(const float* bias, std::int64_t n, float* out) {
  if (bias == nullptr) return;
  for (std::int64_t i = 0; i < n; ++i) out[i] += bias[i];
}

// By as many threads as the products are worth. An element takes a fraction of what ParallelRanges expects; but a step whose
// products end within microseconds is slower by two threads that have to be woken for it, and a layer has many steps.
constexpr std::int64_t kProductsPerElement = 16;
constexpr std::int64_t kProductsPerElementAwake = 1;
void Multiply(MultiplyRows multiply, const RowProducts& all) {
  const std::int64_t products = ThreadsWaitAwake() ? kProductsPerElementAwake : kProductsPerElement;
  const std::int64_t cost = all.vectors * all.length / products;
  ParallelRanges(all.rows, cost, [&](std::int64_t first, std::int64_t last) {
    RowProducts part = all;
    part.w += first * all.length;
    part.out += first;
    part.rows = last - first;
    multiply(part);
  });
}

// Some rows of the recurrence, times what is in `from` for each sequence.
void MultiplyPast(const Cell& cell, std::int64_t sequences, std::int64_t row, std::int64_t rows,
                  const float* from, float* out) {
  const std::int64_t hidden = cell.r.hidden;
  Multiply(cell.multiply,
           {cell.recurrence + row * hidden, rows, hidden, from, sequences, hidden, out + row, cell.rows()});
}

void StepRnn(const Cell& cell, std::int64_t sequences, float* gates) {
  const std::int64_t hidden = cell.r.hidden;
  MultiplyPast(cell, sequences, 0, hidden, cell.h, gates);
  for (std::int64_t i = 0; i < sequences * hidden; ++i) cell.h[i] = cell.act[0](cell.Clip(gates[i]));
}

// Gates in the order i, o, f, c; peepholes in the order i, o, f.
void LstmCell(const Cell& cell, const float* gates, float* c, float* h) {
  const std::int64_t hidden = cell.r.hidden;
  const float* p = cell.peephole;
  for (std::int64_t i = 0; i < hidden; ++i) {
    const float past = c[i];
    const auto peep = [&](std::int64_t gate, float state) {
      return p == nullptr ? 0.0F : p[gate * hidden + i] * state;
    };
    const float in = cell.act[0](cell.Clip(gates[i] + peep(0, past)));
    const float forget =
        cell.r.input_forget ? 1.0F - in : cell.act[0](cell.Clip(gates[2 * hidden + i] + peep(2, past)));
    const float fresh = cell.act[1](cell.Clip(gates[3 * hidden + i]));
    const float state = forget * past + in * fresh;
    const float out = cell.act[0](cell.Clip(gates[hidden + i] + peep(1, state)));
    c[i] = state;
    h[i] = out * cell.act[2](state);
  }
}

void StepLstm(const Cell& cell, std::int64_t sequences, float* gates) {
  const std::int64_t hidden = cell.r.hidden;
  MultiplyPast(cell, sequences, 0, cell.rows(), cell.h, gates);
  for (std::int64_t k = 0; k < sequences; ++k) {
    float* own = gates + k * cell.rows();
    float *c = cell.c + k * hidden, *h = cell.h + k * hidden;
    cell.usual() ? cell.loops.lstm(own, hidden, c, h) : LstmCell(cell, own, c, h);
  }
}

void OpenGates(const Cell& cell, float* gates, const float* recurrent, std::int64_t n) {
  if (cell.usual()) return cell.loops.open(gates, recurrent, n);
  for (std::int64_t i = 0; i < n; ++i) gates[i] = cell.act[0](cell.Clip(gates[i] + recurrent[i]));
}

void MixGru(const Cell& cell, const float* gates, const float* recurrent, float* h) {
  const std::int64_t hidden = cell.r.hidden;
  const float *fresh = gates + 2 * hidden, *of_past = recurrent + 2 * hidden;
  if (cell.usual()) return cell.loops.gru(gates, fresh, of_past, hidden, h);
  for (std::int64_t i = 0; i < hidden; ++i) {
    const float value = cell.act[1](cell.Clip(fresh[i] + of_past[i]));
    h[i] = (1.0F - gates[i]) * value + gates[i] * h[i];
  }
}

// Gates in the order z, r, h.
void StepGru(const Cell& cell, std::int64_t sequences, float* gates) {
  const std::int64_t hidden = cell.r.hidden;
  const bool before_reset = cell.r.linear_before_reset;
  std::fill_n(cell.recurrent, sequences * cell.rows(), 0.0F);
  for (std::int64_t k = 0; k < sequences; ++k)
    AddBias(cell.recurrent_bias(), cell.rows(), cell.recurrent + k * cell.rows());
  MultiplyPast(cell, sequences, 0, before_reset ? 3 * hidden : 2 * hidden, cell.h, cell.recurrent);
  for (std::int64_t k = 0; k < sequences; ++k) {
    float *own = gates + k * cell.rows(), *recurrent = cell.recurrent + k * cell.rows();
    OpenGates(cell, own, recurrent, 2 * hidden);
    const float* reset = own + hidden;
    for (std::int64_t i = 0; i < hidden; ++i) {
      if (before_reset) {
        recurrent[2 * hidden + i] *= reset[i];
      } else {
        cell.past[k * hidden + i] = reset[i] * cell.h[k * hidden + i];
      }
    }
  }
  if (!before_reset) MultiplyPast(cell, sequences, 2 * hidden, hidden, cell.past, cell.recurrent);
  for (std::int64_t k = 0; k < sequences; ++k)
    MixGru(cell, gates + k * cell.rows(), cell.recurrent + k * cell.rows(), cell.h + k * hidden);
}

using StepFunction = void (*)(const Cell&, std::int64_t sequences, float* gates);

const float* At(In in, std::size_t index, std::int64_t offset) {
  return Present(in, index) ? Data<float>(in[index]) + offset : nullptr;
}

// Row of a state tensor ([directions, batch, hidden], or batch first).
std::int64_t StateRow(const Recurrent& r, std::int64_t d, std::int64_t b) {
  return (r.batch_first ? b * r.directions + d : d * r.batch + b) * r.hidden;
}

void LoadState(const Recurrent& r, In in, std::size_t index, std::int64_t row, float* state) {
  const float* initial = At(in, index, row);
  std::fill_n(state, r.hidden, 0.0F);
  if (initial != nullptr) std::copy_n(initial, r.hidden, state);
}

void StoreState(const Recurrent& r, Out out, std::size_t index, std::int64_t row, const float* state) {
  if (index < out.size() && out[index].data != nullptr) {
    std::copy_n(state, r.hidden, MutableData<float>(out[index]) + row);
  }
}

// Sequences of one length that run together.
struct Group {
  std::int64_t direction = 0;
  std::int64_t first = 0;
  std::int64_t count = 0;
  std::int64_t length = 0;
};

// The gates of `count` steps from `begin` on, as far as they follow from the inputs and the biases.
void ProjectInputs(const Cell& cell, const Group& group, In in, std::int64_t begin, std::int64_t count) {
  const Recurrent& r = cell.r;
  const std::int64_t rows = cell.rows();
  std::fill_n(cell.gates, count * group.count * rows, 0.0F);
  for (std::int64_t i = 0; i < count * group.count; ++i) {
    AddBias(cell.bias, rows, cell.gates + i * rows);
    // A GRU keeps the recurrence's own bias apart (StepGru).
    if (r.gates != 3) AddBias(cell.recurrent_bias(), rows, cell.gates + i * rows);
  }
  const std::int64_t stride = r.batch_first ? r.input : r.batch * r.input;
  for (std::int64_t k = 0; k < group.count; ++k) {
    const std::int64_t b = group.first + k;
    const float* x =
        Data<float>(in[kX]) + (r.batch_first ? b * r.steps * r.input : b * r.input) + begin * stride;
    Multiply(cell.multiply,
             {cell.w, rows, r.input, x, count, stride, cell.gates + k * rows, group.count * rows});
  }
}

// Writes what the group's sequences are at step t into Y.
void StoreStep(const Cell& cell, const Group& group, Out out, std::int64_t t, const float* h) {
  if (out[0].data == nullptr) return;
  const Recurrent& r = cell.r;
  for (std::int64_t k = 0; k < group.count; ++k) {
    const std::int64_t b = group.first + k;
    const std::int64_t row = r.batch_first ? (b * r.steps + t) * r.directions + group.direction
                                           : (t * r.directions + group.direction) * r.batch + b;
    float* y = MutableData<float>(out[0]) + row * r.hidden;
    h == nullptr ? std::fill_n(y, r.hidden, 0.0F) : std::copy_n(h + k * r.hidden, r.hidden, y);
  }
}

void RunGroup(const Cell& cell, StepFunction step, const Group& group, std::int64_t ahead, In in, Out out) {
  const Recurrent& r = cell.r;
  const bool backwards = r.reverse_only || group.direction == 1;
  for (std::int64_t k = 0; k < group.count; ++k) {
    const std::int64_t row = StateRow(r, group.direction, group.first + k);
    LoadState(r, in, kFirstH, row, cell.h + k * r.hidden);
    LoadState(r, in, kFirstC, row, cell.c + k * r.hidden);
  }
  for (std::int64_t done = 0; done < group.length; done += ahead) {
    const std::int64_t count = std::min(ahead, group.length - done);
    const std::int64_t begin = backwards ? group.length - done - count : done;
    ProjectInputs(cell, group, in, begin, count);
    for (std::int64_t i = 0; i < count; ++i) {
      const std::int64_t at = backwards ? count - 1 - i : i;
      step(cell, group.count, cell.gates + at * group.count * cell.rows());
      StoreStep(cell, group, out, begin + at, cell.h);
    }
  }
  for (std::int64_t t = group.length; t < r.steps; ++t) StoreStep(cell, group, out, t, nullptr);
  for (std::int64_t k = 0; k < group.count; ++k) {
    const std::int64_t row = StateRow(r, group.direction, group.first + k);
    StoreState(r, out, kLastH, row, cell.h + k * r.hidden);
    StoreState(r, out, kLastC, row, cell.c + k * r.hidden);
  }
}

// One group, or one for each sequence when they have lengths of their own.
absl::Status RunDirection(const StepContext& ctx, const Cell& cell, StepFunction step, std::int64_t direction,
                          std::int64_t ahead, In in, Out out) {
  const Recurrent& r = cell.r;
  if (!Present(in, kLengths)) {
    RunGroup(cell, step, {direction, 0, r.batch, r.steps}, ahead, in, out);
    return absl::OkStatus();
  }
  for (std::int64_t b = 0; b < r.batch; ++b) {
    const std::int64_t length = Data<std::int32_t>(in[kLengths])[b];
    if (length < 0 || length > r.steps)
      return ctx.Error(absl::StrCat("a sequence of ", length, " in ", r.steps, " steps"));
    RunGroup(cell, step, {direction, b, 1, length}, ahead, in, out);
  }
  return absl::OkStatus();
}

Made MakeRecurrent(const StepContext& ctx, Infos in, Infos) {
  TROUPE_ASSIGN_OR_RETURN(Recurrent recurrent, ReadRecurrent(ctx, in));
  const StepFunction function =
      ctx.step.op() == "LSTM" ? &StepLstm : (ctx.step.op() == "GRU" ? &StepGru : &StepRnn);
  const Memory memory(recurrent);
  return MakeKernel(
      [r = std::move(recurrent), function, memory, multiply = FindMultiplyRows(), loops = FindGateLoops(),
       step = ctx.step](In in, Out out, std::byte* scratch) -> absl::Status {
        const auto at = [scratch](std::uint64_t offset) {
          return reinterpret_cast<float*>(scratch + offset);
        };
        const std::int64_t rows = r.gates * r.hidden;
        for (std::int64_t d = 0; d < r.directions; ++d) {
          const Cell cell{r,
                          multiply,
                          loops,
                          r.activations.data() + static_cast<std::size_t>(d) * r.per_direction,
                          Data<float>(in[kW]) + d * rows * r.input,
                          Data<float>(in[kR]) + d * rows * r.hidden,
                          At(in, kBias, d * 2 * rows),
                          At(in, kPeepholes, d * 3 * r.hidden),
                          at(memory.gates),
                          at(memory.recurrent),
                          at(memory.past),
                          at(memory.h),
                          at(memory.c)};
          TROUPE_RETURN_IF_ERROR(RunDirection(StepContext{step}, cell, function, d, memory.steps, in, out));
        }
        return absl::OkStatus();
      },
      memory.parts.size());
}

constexpr Operator Entry(std::string_view name) {
  return {.name = name,
          .min_opset = 7,
          .max_opset = kNewestOpset,
          .infer = &InferRecurrent,
          .make = &MakeRecurrent,
          .types = TypesOf({proto::FP32})};
}

constexpr Operator kOperators[] = {Entry("LSTM"), Entry("GRU"), Entry("RNN")};

}  // namespace

std::span<const Operator> RecurrentOperators() {
  return kOperators;
}

}  // namespace troupe::gpu
