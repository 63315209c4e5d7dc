#include "gpu/engine/control_steps.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.hpp"
#include "gpu/engine/branch_kernel.hpp"
#include "gpu/engine/loop_kernel.hpp"
#include "gpu/engine/program_builder.hpp"
#include "gpu/ops/control_flow.hpp"

namespace troupe::gpu {
namespace {

// So often a loop is planned anew because a value that it carries turned out larger, or to have a shape that only the
// run knows. What grows in each trip never comes to an end.
constexpr int kMaxPlannings = 8;

alignas(64) constexpr std::byte kTrue[64] = {std::byte{1}};

bool OneElement(const ValueInfo& info, proto::DataType type) {
  return info.type == type && info.elements() == 1;
}

bool IsKnown(const ValueInfo& info, bool value) {
  return info.constant != nullptr && (*info.constant != std::byte{0}) == value;
}

std::string Describe(const ValueInfo& info) {
  return absl::StrCat(proto::DataType_Name(info.type), FormatShape(info.shape));
}

// Grows `info` so that it has room for `other`, of the same rank. True: it was changed.
bool Widen(ValueInfo& info, const ValueInfo& other) {
  bool changed = other.bounded && !info.bounded;
  for (std::size_t d = 0; d < info.shape.size(); ++d) {
    changed = changed || (info.shape[d] != other.shape[d] && !info.bounded) || info.shape[d] < other.shape[d];
    info.shape[d] = std::max(info.shape[d], other.shape[d]);
  }
  info.bounded = info.bounded || changed;
  return changed;
}

absl::StatusOr<ControlStep> MakeIf(const StepContext& ctx, std::span<const ValueInfo> in,
                                   const SubgraphBuilder& build) {
  if (!OneElement(in[0], proto::BOOL))
    return ctx.Error(absl::StrCat("has the condition ", Describe(in[0]), ", expected one BOOL"));
  ControlStep made;
  std::array<SubgraphPlan, 2> branches;
  for (int b = 0; b < 2; ++b) {
    const proto::Subgraph& branch = ctx.step.subgraphs(b);
    TROUPE_ASSIGN_OR_RETURN(Program program, build(branch, CapturedInfos(branch, in)));
    std::vector<ValueInfo> outputs = OutputInfos(program);
    branches[static_cast<std::size_t>(b)] = MakeSubgraphPlan(branch, std::move(program));
    if (b == 0) {
      made.outputs = std::move(outputs);
      continue;
    }
    for (std::size_t i = 0; i < outputs.size(); ++i) {
      ValueInfo& merged = made.outputs[i];
      if (merged.type != outputs[i].type || merged.shape.size() != outputs[i].shape.size())
        return ctx.Error(absl::StrCat("makes ", Describe(merged), " in one branch and ", Describe(outputs[i]),
                                      " in the other as output '", ctx.step.outputs(static_cast<int>(i)),
                                      "'; both must have one type and as many dimensions"));
      Widen(merged, outputs[i]);
    }
  }
  made.kernel = std::make_unique<BranchKernel>(std::move(branches));
  return made;
}

// Plans a Loop or a Scan: its body for what it gets, and again where a trip makes more than that.
class LoopPlanner {
 public:
  LoopPlanner(const StepContext& ctx, std::span<const ValueInfo> in, const SubgraphBuilder& build)
      : ctx_(ctx), in_(in), build_(build), counts_(CountsOf(ctx.step)), loop_(ctx.step.op() == "Loop") {}

  absl::StatusOr<ControlStep> Make() {
    TROUPE_RETURN_IF_ERROR(loop_ ? ReadLoop() : ReadScan());
    for (std::size_t i = 0; i < counts_.carried; ++i) {
      inner_.push_back(in_[given() + i]);
      inner_.back().constant = nullptr;
    }
    for (const TripAxis& along : form_.parts) TROUPE_RETURN_IF_ERROR(AddPart(along));
    const std::vector<ValueInfo> captured = CapturedInfos(body(), in_);
    inner_.insert(inner_.end(), captured.begin(), captured.end());
    for (int planning = 0; planning < kMaxPlannings; ++planning) {
      TROUPE_ASSIGN_OR_RETURN(Program program, build_(body(), inner_));
      std::vector<ValueInfo> made = OutputInfos(program);
      const bool never_ends =
          loop_ && IsKnown(program.values[static_cast<std::size_t>(program.outputs[0])].info, true);
      TROUPE_ASSIGN_OR_RETURN(const bool changed, WidenCarried(made));
      if (!changed) return Finish(std::move(program), made, never_ends);
    }
    return ctx_.Error(
        absl::StrCat("carries '", body().inputs(static_cast<int>(given() + grown_)),
                     "', which is larger after each trip: ", Describe(inner_[given() + grown_]),
                     " after some; what a loop carries must have a largest shape. Give it the size "
                     "that it has at the end, and write into a part of it in each trip"));
  }

 private:
  [[nodiscard]] const proto::Subgraph& body() const { return ctx_.step.subgraphs(0); }
  [[nodiscard]] std::size_t given() const { return loop_ ? 2 : 0; }
  [[nodiscard]] std::size_t told() const { return loop_ ? 1 : 0; }

  absl::Status ReadLoop() {
    if (!in_[0].absent() && !OneElement(in_[0], proto::INT64))
      return ctx_.Error(absl::StrCat("has the trip count ", Describe(in_[0]), ", expected one INT64"));
    if (!in_[1].absent() && !OneElement(in_[1], proto::BOOL))
      return ctx_.Error(absl::StrCat("has the condition ", Describe(in_[1]), ", expected one BOOL"));
    if (in_[0].constant != nullptr) {
      std::int64_t trips = 0;
      std::memcpy(&trips, in_[0].constant, sizeof(trips));
      most_ = std::max<std::int64_t>(trips, 0);
    }
    if (IsKnown(in_[1], false)) most_ = 0;
    begins_ = in_[1].absent() || in_[1].constant != nullptr;
    inner_.resize(given());
    inner_[0].type = proto::INT64;
    inner_[1].type = proto::BOOL;
    inner_[1].constant = kTrue;  // a trip begins only while the condition holds
    form_.gathered.resize(counts_.gathered);
    return absl::OkStatus();
  }

  absl::Status ReadScan() {
    const std::size_t parts = OwnInputs(ctx_.step) - counts_.carried;
    TROUPE_ASSIGN_OR_RETURN(form_.parts, Axes("scan_input", parts));
    TROUPE_ASSIGN_OR_RETURN(form_.gathered, Axes("scan_output", counts_.gathered));
    for (std::size_t i = 0; i < parts; ++i) {
      const Shape& shape = in_[counts_.carried + i].shape;
      TROUPE_ASSIGN_OR_RETURN(form_.parts[i].axis, AxisOf("scan_input", i, shape.size()));
      const std::int64_t trips = shape[form_.parts[i].axis];
      if (most_ && *most_ != trips)
        return ctx_.Error(absl::StrCat("goes along inputs of ", *most_, " and of ", trips, " parts"));
      most_ = trips;
      varies_ = varies_ || in_[counts_.carried + i].bounded;
    }
    if (*most_ > kMaxTrips)
      return ctx_.Error(absl::StrCat("goes along ", *most_, " parts; at most ", kMaxTrips, " trips are run"));
    return absl::OkStatus();
  }

  // Their directions; the axes depend on ranks.
  absl::StatusOr<std::vector<TripAxis>> Axes(const std::string& kind, std::size_t count) const {
    std::vector<TripAxis> all(count);
    const auto directions = ctx_.Ints(kind + "_directions");
    const auto axes = ctx_.Ints(kind + "_axes");
    if ((!directions.empty() && directions.size() != count) || (!axes.empty() && axes.size() != count))
      return ctx_.Error(absl::StrCat("has ", directions.size(), " ", kind, "_directions and ", axes.size(),
                                     " ", kind, "_axes, expected ", count, " of each or none"));
    for (std::size_t i = 0; i < directions.size(); ++i) all[i].backwards = directions[i] != 0;
    return all;
  }

  absl::StatusOr<std::size_t> AxisOf(const std::string& kind, std::size_t i, std::size_t rank) const {
    const auto axes = ctx_.Ints(kind + "_axes");
    const std::int64_t axis = axes.empty() ? 0 : axes[i];
    const auto dims = static_cast<std::int64_t>(rank);
    if (axis < -dims || axis >= dims)
      return ctx_.Error(
          absl::StrCat("has ", kind, "_axes with ", axis, " for a tensor of ", rank, " dimensions"));
    return static_cast<std::size_t>(axis < 0 ? axis + dims : axis);
  }

  absl::Status AddPart(const TripAxis& along) {
    ValueInfo part = in_[inner_.size()];
    part.constant = nullptr;
    part.shape.erase(part.shape.begin() + static_cast<std::ptrdiff_t>(along.axis));
    inner_.push_back(std::move(part));
    return absl::OkStatus();
  }

  absl::StatusOr<bool> WidenCarried(const std::vector<ValueInfo>& made) {
    if (loop_ && !OneElement(made[0], proto::BOOL))
      return ctx_.Error(
          absl::StrCat("has a body that makes the condition ", Describe(made[0]), ", expected one BOOL"));
    bool changed = false;
    for (std::size_t i = 0; i < counts_.carried; ++i) {
      ValueInfo& carried = inner_[given() + i];
      const ValueInfo& next = made[told() + i];
      if (next.type != carried.type || next.shape.size() != carried.shape.size())
        return ctx_.Error(absl::StrCat("carries '", body().inputs(static_cast<int>(given() + i)), "' as ",
                                       Describe(carried), " into a trip and as ", Describe(next),
                                       " out of it; both must have one type and as many dimensions"));
      if (!Widen(carried, next)) continue;
      changed = true;
      grown_ = i;
    }
    return changed;
  }

  absl::StatusOr<ControlStep> Finish(Program program, std::vector<ValueInfo>& made, bool never_ends) {
    const bool exact = loop_ ? most_ && (*most_ == 0 || (begins_ && never_ends)) : !varies_;
    if (loop_ && begins_ && never_ends && most_.value_or(in_[0].absent() ? kMaxTrips + 1 : 0) > kMaxTrips)
      return ctx_.Error(absl::StrCat("goes round ", most_ ? absl::StrCat(*most_, " times") : "without end",
                                     "; at most ", kMaxTrips, " trips are run"));
    ControlStep step;
    for (std::size_t i = 0; i < counts_.carried; ++i) step.outputs.push_back(inner_[given() + i]);
    for (std::size_t i = 0; i < counts_.gathered; ++i) {
      ValueInfo& part = made[told() + counts_.carried + i];
      const std::string& name = ctx_.step.outputs(static_cast<int>(counts_.carried + i));
      if (!most_ || *most_ > kMaxTrips) {
        if (name.empty()) {
          step.outputs.emplace_back();  // nothing reads it, and how large it would be is not known
          continue;
        }
        return ctx_.Error(absl::StrCat("gathers '", name,
                                       "' in each trip: its trip count must be known when the plan "
                                       "is made, and be at most ",
                                       kMaxTrips, "; make it a constant, or compute it from shapes"));
      }
      if (!loop_) {
        TROUPE_ASSIGN_OR_RETURN(form_.gathered[i].axis, AxisOf("scan_output", i, part.shape.size() + 1));
      }
      part.shape.insert(part.shape.begin() + static_cast<std::ptrdiff_t>(form_.gathered[i].axis), *most_);
      part.bounded = part.bounded || !exact;
      step.outputs.push_back(std::move(part));
    }
    for (const ValueInfo& output : step.outputs) TROUPE_RETURN_IF_ERROR(CountElements(output.shape).status());
    form_.counts = loop_;
    form_.states = counts_.carried;
    form_.body = MakeSubgraphPlan(body(), std::move(program));
    step.kernel = std::make_unique<LoopKernel>(std::move(form_), step.outputs);
    return step;
  }

  const StepContext& ctx_;
  std::span<const ValueInfo> in_;
  const SubgraphBuilder& build_;
  LoopCounts counts_;
  bool loop_;
  std::optional<std::int64_t> most_;  // trips, when that is known
  bool begins_ = false;               // a Loop whose condition before the first trip is known
  bool varies_ = false;               // a Scan whose trips only the run knows
  std::vector<ValueInfo> inner_;      // what the body reads
  std::size_t grown_ = 0;             // the carried value that was widened last
  LoopForm form_;
};

}  // namespace

const proto::Subgraph* KnownBranch(const StepContext& ctx, std::span<const ValueInfo> in) {
  if (ctx.step.op() != "If" || in[0].constant == nullptr || !OneElement(in[0], proto::BOOL)) return nullptr;
  return &ctx.step.subgraphs(*in[0].constant != std::byte{0} ? 0 : 1);
}

std::optional<std::int64_t> KnownTrips(const StepContext& ctx, std::span<const ValueInfo> in,
                                       std::int64_t steps) {
  if (ctx.step.op() != "Loop" || in[0].constant == nullptr || !OneElement(in[0], proto::INT64))
    return std::nullopt;
  if (!in[1].absent() && (!OneElement(in[1], proto::BOOL) || !IsKnown(in[1], true))) return std::nullopt;
  std::int64_t trips = 0;
  std::memcpy(&trips, in[0].constant, sizeof(trips));
  const std::int64_t body = std::max(ctx.step.subgraphs(0).steps_size(), 1);
  if (trips < 1 || trips > steps / body) return std::nullopt;
  return trips;
}

std::vector<ValueInfo> CapturedInfos(const proto::Subgraph& subgraph, std::span<const ValueInfo> in) {
  std::vector<ValueInfo> infos;
  for (const proto::Subgraph::Capture& capture : subgraph.captures()) infos.push_back(in[capture.input()]);
  return infos;
}

std::vector<ValueInfo> OutputInfos(const Program& program) {
  std::vector<ValueInfo> infos;
  for (const int id : program.outputs) {
    infos.push_back(program.values[static_cast<std::size_t>(id)].info);
    infos.back().constant = nullptr;
  }
  return infos;
}

absl::StatusOr<ControlStep> MakeControlStep(const StepContext& ctx, std::span<const ValueInfo> in,
                                            const SubgraphBuilder& build) {
  return ctx.step.op() == "If" ? MakeIf(ctx, in, build) : LoopPlanner(ctx, in, build).Make();
}

absl::StatusOr<std::vector<ValueInfo>> InferControlStep(const StepContext& ctx,
                                                        std::span<const ValueInfo> in) {
  proto::Model model;
  model.set_opset(ctx.opset);
  ProgramBuilder builder(model, {});
  builder.OnlyInfer();
  return builder.InferStep(ctx, in);
}

}  // namespace troupe::gpu
