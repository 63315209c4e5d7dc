// Tables of signal processing (opset 17): HannWindow, HammingWindow, BlackmanWindow, MelWeightMatrix.
#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>

#include "absl/strings/str_cat.h"
#include "gpu/ops/convert.hpp"
#include "gpu/ops/families.hpp"
#include "gpu/ops/op_support.hpp"
#include "gpu/ops/table_limits.hpp"

namespace troupe::gpu {
namespace {

absl::StatusOr<proto::DataType> TableType(const StepContext& ctx) {
  const std::int64_t asked = ctx.Int("output_datatype", 1);
  const proto::DataType type = FromOnnxType(asked);
  if (Has(kNumberTypes, type)) return type;
  return ctx.Error(absl::StrCat("output_datatype ", OnnxTypeName(asked), " is not supported; ask for FLOAT"));
}

absl::StatusOr<std::int64_t> OneInt(const StepContext& ctx, Infos in, std::size_t index, const char* what) {
  TROUPE_ASSIGN_OR_RETURN(const Shape given, RequireInts(ctx, in, index, what));
  if (given.size() != 1) return ctx.Error(absl::StrCat(what, " must be one number"));
  if (given[0] < 1 || given[0] > kMaxTabulated)
    return ctx.Error(absl::StrCat(what, " is ", given[0], ", wants 1 to 2^24"));
  return given[0];
}

Inferred InferWindow(const StepContext& ctx, Infos in) {
  TROUPE_RETURN_IF_ERROR(CheckInputs(ctx, in, 1, 1, kIndexTypes));
  TROUPE_ASSIGN_OR_RETURN(const proto::DataType type, TableType(ctx));
  TROUPE_ASSIGN_OR_RETURN(const std::int64_t size, OneInt(ctx, in, 0, "size"));
  return OneValue(ctx, type, {size});
}

// a - b cos(x) + c cos(2x)
std::array<double, 3> WindowTerms(std::string_view op) {
  if (op == "HannWindow") return {0.5, 0.5, 0};
  if (op == "HammingWindow") return {25.0 / 46, 21.0 / 46, 0};
  return {0.42, 0.5, 0.08};
}

// Computed in FP64 (MakeConverted below).
Made MakeWindowOf(const StepContext& ctx, Infos, Infos) {
  return MakeKernel(
      [terms = WindowTerms(ctx.step.op()), periodic = ctx.Int("periodic", 1) != 0](In, Out out, std::byte*) {
        const std::int64_t n = Elements(out[0]);
        const double turn =
            2 * std::numbers::pi / static_cast<double>(std::max<std::int64_t>(periodic ? n : n - 1, 1));
        for (std::int64_t i = 0; i < n; ++i) {
          const double x = turn * static_cast<double>(i);
          MutableData<double>(out[0])[i] = terms[0] - terms[1] * std::cos(x) + terms[2] * std::cos(2 * x);
        }
        return absl::OkStatus();
      });
}

Made MakeWindow(const StepContext& ctx, Infos in, Infos out) {
  return MakeConverted(&MakeWindowOf, ctx, in, out, std::array{in[0].type}, std::array{proto::FP64});
}

// --- MelWeightMatrix

struct Mel {
  std::int64_t bands = 1;
  std::int64_t bins = 1;  // of a spectrum
  double length = 1;      // of the transform, in samples
  double rate = 1;        // in samples a second
  double lowest = 0;      // edge of the first band, in mel
  double step = 0;        // from an edge to the next, in mel

  // The bin where band `i` begins; it has its middle at the next band's, and its end at the one's after that.
  // Bands above half the sample rate have no bins.
  [[nodiscard]] std::int64_t Edge(std::int64_t i) const {
    const double hertz = 700 * (std::pow(10, (lowest + step * static_cast<double>(i)) / 2595) - 1);
    const double bin = std::floor((length + 1) * hertz / rate);
    return static_cast<std::int64_t>(std::min(bin, static_cast<double>(bins)));
  }
};

absl::StatusOr<Mel> ReadMel(const StepContext& ctx, Infos in) {
  Mel mel;
  TROUPE_ASSIGN_OR_RETURN(mel.bands, OneInt(ctx, in, 0, "num_mel_bins"));
  TROUPE_ASSIGN_OR_RETURN(const std::int64_t length, OneInt(ctx, in, 1, "dft_length"));
  TROUPE_ASSIGN_OR_RETURN(const std::int64_t rate, OneInt(ctx, in, 2, "sample_rate"));
  TROUPE_ASSIGN_OR_RETURN(const std::vector<float> low, RequireFloats(ctx, in, 3, "lower_edge_hertz"));
  TROUPE_ASSIGN_OR_RETURN(const std::vector<float> high, RequireFloats(ctx, in, 4, "upper_edge_hertz"));
  if (low.size() != 1 || high.size() != 1 || !(low[0] >= 0) || !(high[0] > low[0]) || !(high[0] < 1e9F))
    return ctx.Error("the edges must be one number each, from 0 Hz up, the lower one first");
  mel.bins = length / 2 + 1;
  mel.length = static_cast<double>(length);
  mel.rate = static_cast<double>(rate);
  const auto to_mel = [](double hertz) { return 2595 * std::log10(1 + hertz / 700); };
  mel.lowest = to_mel(low[0]);
  mel.step = (to_mel(high[0]) - mel.lowest) / (static_cast<double>(mel.bands) + 2);
  return mel;
}

Inferred InferMel(const StepContext& ctx, Infos in) {
  TROUPE_RETURN_IF_ERROR(CheckInputs(ctx, in, 5, 5, kIndexTypes));
  TROUPE_ASSIGN_OR_RETURN(const proto::DataType type, TableType(ctx));
  TROUPE_ASSIGN_OR_RETURN(const Mel mel, ReadMel(ctx, in));
  return OneValue(ctx, type, {mel.bins, mel.bands});
}

// Computed in FP64 (MakeConverted below): triangles that rise to the middle of each band and fall from there.
Made MakeMelOf(const StepContext& ctx, Infos in, Infos) {
  TROUPE_ASSIGN_OR_RETURN(const Mel mel, ReadMel(ctx, in));
  return MakeKernel([mel](In, Out out, std::byte*) {
    auto* table = MutableData<double>(out[0]);
    std::fill_n(table, mel.bins * mel.bands, 0.0);
    for (std::int64_t band = 0; band < mel.bands; ++band) {
      const std::array edge{mel.Edge(band), mel.Edge(band + 1), mel.Edge(band + 2)};
      const auto put = [&](std::int64_t bin, double weight) {
        if (bin < mel.bins) table[bin * mel.bands + band] = weight;
      };
      const auto rise = static_cast<double>(edge[1] - edge[0]);
      const auto fall = static_cast<double>(edge[2] - edge[1]);
      for (std::int64_t bin = edge[0]; bin <= edge[1]; ++bin)
        put(bin, rise == 0 ? 1 : static_cast<double>(bin - edge[0]) / rise);
      for (std::int64_t bin = edge[1]; bin < edge[2]; ++bin)
        put(bin, static_cast<double>(edge[2] - bin) / fall);
    }
    return absl::OkStatus();
  });
}

Made MakeMel(const StepContext& ctx, Infos in, Infos out) {
  std::vector<proto::DataType> types;
  for (const ValueInfo& info : in) types.push_back(info.type);
  return MakeConverted(&MakeMelOf, ctx, in, out, types, std::array{proto::FP64});
}

constexpr Operator Window(std::string_view name) {
  return {.name = name,
          .min_opset = 17,
          .max_opset = kNewestOpset,
          .infer = &InferWindow,
          .make = &MakeWindow,
          .types = kIndexTypes};
}

constexpr Operator kOperators[] = {
    Window("HannWindow"),
    Window("HammingWindow"),
    Window("BlackmanWindow"),
    {.name = "MelWeightMatrix",
     .min_opset = 17,
     .max_opset = kNewestOpset,
     .infer = &InferMel,
     .make = &MakeMel,
     .types = kIndexTypes},
};

}  // namespace

std::span<const Operator> SignalTableOperators() {
  return kOperators;
}

}  // namespace troupe::gpu
