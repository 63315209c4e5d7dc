// com.microsoft.EmbedLayerNormalization: the rows of up to three tables that a token chooses, summed and normalised.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "gpu/ops/convert.hpp"
#include "gpu/ops/families.hpp"
#include "gpu/ops/indices.hpp"
#include "gpu/ops/inner_kernel.hpp"
#include "gpu/ops/layer_norm_rows.hpp"

namespace troupe::gpu {
namespace {

constexpr TypeSet kTypes = TypesOf({proto::FP32, proto::FP16, proto::BF16});

// Inputs.
constexpr std::size_t kIds = 0, kSegments = 1, kWords = 2, kPositions = 3, kSegmentTable = 4, kGamma = 5,
                      kBeta = 6, kMask = 7, kPlaces = 8;

struct Embedding {
  std::int64_t batch = 0, length = 0, size = 0;
  bool placed_alike = false;  // position_ids are [1, length]
};

absl::Status CheckTables(const StepContext& ctx, Infos in, std::int64_t size) {
  for (std::size_t i : {kWords, kPositions, kSegmentTable, kGamma, kBeta}) {
    if (i != kSegmentTable && !Present(in, i)) return ctx.Error(absl::StrCat("input ", i, " is required"));
    if (!Present(in, i)) continue;
    const Shape& shape = in[i].shape;
    const std::size_t rank = i == kGamma || i == kBeta ? 1 : 2;
    if (shape.size() != rank || shape.back() != size || in[i].type != in[kWords].type) {
      return ctx.Error(absl::StrCat("input ", i, " is ", proto::DataType_Name(in[i].type), FormatShape(shape),
                                    ", wants ", proto::DataType_Name(in[kWords].type), " and rows of ", size,
                                    " elements, as word_embedding has"));
    }
  }
  return CheckType(ctx, in, kWords, kTypes);
}

absl::StatusOr<Embedding> ReadEmbedding(const StepContext& ctx, Infos in) {
  TROUPE_RETURN_IF_ERROR(CheckAttributes(ctx, {"epsilon", "mask_index_type"}));
  TROUPE_RETURN_IF_ERROR(CheckInputs(ctx, in, 1, 9, kIndexTypes));
  const Shape& ids = in[kIds].shape;
  if (!Present(in, kWords) || in[kWords].shape.size() != 2 || ids.size() != 2)
    return ctx.Error("input_ids must be [batch, length] and word_embedding [words, size]");
  if (Present(in, kSegments) != Present(in, kSegmentTable))
    return ctx.Error("segment_ids and segment_embedding come together");
  Embedding e{ids[0], ids[1], in[kWords].shape[1]};
  TROUPE_RETURN_IF_ERROR(CheckTables(ctx, in, e.size));
  for (std::size_t i : {kSegments, kMask, kPlaces}) {
    if (!Present(in, i)) continue;
    TROUPE_RETURN_IF_ERROR(CheckType(ctx, in, i, kIndexTypes));
    e.placed_alike = i == kPlaces && in[i].shape == Shape{1, e.length};
    if (in[i].shape != ids && !e.placed_alike) {
      return ctx.Error(absl::StrCat("input ", i, " is ", FormatShape(in[i].shape),
                                    ", wants the shape of input_ids, ", FormatShape(ids)));
    }
  }
  if (!Present(in, kPlaces) && in[kPositions].shape[0] < e.length)
    return ctx.Error(absl::StrCat("position_embedding has ", in[kPositions].shape[0],
                                  " rows for sequences of ", e.length));
  if (e.size == 0) return ctx.Error("the embeddings have no elements");
  return e;
}

Inferred InferEmbedding(const StepContext& ctx, Infos in) {
  TROUPE_ASSIGN_OR_RETURN(const Embedding e, ReadEmbedding(ctx, in));
  TROUPE_ASSIGN_OR_RETURN(ValueInfo rows, Value(ctx, in[kWords].type, {e.batch, e.length, e.size}));
  TROUPE_ASSIGN_OR_RETURN(ValueInfo lengths, Value(ctx, proto::INT32, {e.batch}));
  if (ctx.step.outputs_size() > 3) return ctx.Error("has more than 3 outputs");
  std::vector<ValueInfo> out = {rows, lengths, rows};
  out.resize(static_cast<std::size_t>(std::max(ctx.step.outputs_size(), 1)));
  return out;
}

// Rows are gathered in their own type, and summed and normalised in FP32.
class EmbeddingKernel final : public Kernel {
 public:
  static Made Make(const StepContext& ctx, Infos in, Infos) {
    auto kernel = std::make_unique<EmbeddingKernel>();
    TROUPE_ASSIGN_OR_RETURN(kernel->e_, ReadEmbedding(ctx, in));
    kernel->step_ = ctx.step;
    kernel->epsilon_ = ctx.Float("epsilon", 1e-12F);
    for (std::uint64_t* place : {&kernel->gamma_, &kernel->beta_, &kernel->row_, &kernel->sum_})
      *place = kernel->parts_.AddFloats(kernel->e_.size);
    return kernel;
  }

  [[nodiscard]] Bytes scratch() const override { return parts_.size(); }

  absl::Status Run(In in, Out out, std::byte* scratch) const override {
    const auto at = [&](std::uint64_t place) { return reinterpret_cast<float*>(scratch + place); };
    const proto::DataType type = in[kWords].type;
    ConvertElements(type, in[kGamma].data, proto::FP32, scratch + gamma_, e_.size);
    ConvertElements(type, in[kBeta].data, proto::FP32, scratch + beta_, e_.size);
    for (std::int64_t token = 0; token < e_.batch * e_.length; ++token) {
      std::fill_n(at(sum_), e_.size, 0.0F);
      TROUPE_RETURN_IF_ERROR(AddRow(in, kWords, Index(in[kIds], token), scratch));
      TROUPE_RETURN_IF_ERROR(AddRow(in, kPositions, Place(in, token), scratch));
      if (Present(in, kSegments))
        TROUPE_RETURN_IF_ERROR(AddRow(in, kSegmentTable, Index(in[kSegments], token), scratch));
      Store(out, 2, token, at(sum_));
      LayerNormRow<float> row{e_.size, at(sum_), at(gamma_), at(beta_), at(row_), epsilon_, 0, 0};
      normalize_(row);
      Store(out, 0, token, at(row_));
    }
    if (out.size() > 1 && out[1].data != nullptr) CountSeen(in, out[1]);
    return absl::OkStatus();
  }

 private:
  static std::int64_t Index(const TensorView& ids, std::int64_t token) {
    return IntAt(ids.type, ids.data, token);
  }
  std::int64_t Place(In in, std::int64_t token) const {
    if (!Present(in, kPlaces)) return token % e_.length;
    return Index(in[kPlaces], e_.placed_alike ? token % e_.length : token);
  }

  absl::Status AddRow(In in, std::size_t table, std::int64_t index, std::byte* scratch) const {
    const std::int64_t rows = in[table].shape[0];
    if (index < 0 || index >= rows) return IndexError(step_, index, rows);
    const std::size_t bytes = static_cast<std::size_t>(e_.size) * ElementSize(in[table].type);
    ConvertElements(in[table].type, in[table].data + static_cast<std::size_t>(index) * bytes, proto::FP32,
                    scratch + row_, e_.size);
    const float* row = reinterpret_cast<const float*>(scratch + row_);
    float* sum = reinterpret_cast<float*>(scratch + sum_);
    for (std::int64_t i = 0; i < e_.size; ++i) sum[i] += row[i];
    return absl::OkStatus();
  }

  void Store(Out out, std::size_t index, std::int64_t token, const float* row) const {
    if (index >= out.size() || out[index].data == nullptr) return;
    const std::size_t bytes = static_cast<std::size_t>(e_.size) * ElementSize(out[index].type);
    ConvertElements(proto::FP32, reinterpret_cast<const std::byte*>(row), out[index].type,
                    out[index].data + static_cast<std::size_t>(token) * bytes, e_.size);
  }

  // How many tokens of each sequence the mask shows; 0 without a mask.
  void CountSeen(In in, TensorView& out) const {
    for (std::int64_t b = 0; b < e_.batch; ++b) {
      std::int32_t seen = 0;
      for (std::int64_t s = 0; s < e_.length && Present(in, kMask); ++s)
        seen += Index(in[kMask], b * e_.length + s) == 1 ? 1 : 0;
      MutableData<std::int32_t>(out)[b] = seen;
    }
  }

  Embedding e_;
  proto::Step step_;
  float epsilon_ = 0;
  LayerNormFunction normalize_ = FindLayerNormRow();
  ScratchParts parts_;
  std::uint64_t gamma_ = 0, beta_ = 0, row_ = 0, sum_ = 0;
};

Made MakeEmbedding(const StepContext& ctx, Infos in, Infos out) {
  return EmbeddingKernel::Make(ctx, in, out);
}

constexpr Operator kOperators[] = {
    {.name = "com.microsoft.EmbedLayerNormalization",
     .min_opset = 1,
     .max_opset = kNewestOpset,
     .infer = &InferEmbedding,
     .make = &MakeEmbedding,
     .types = kIndexTypes},
};

}  // namespace

std::span<const Operator> EmbedNormOperators() {
  return kOperators;
}

}  // namespace troupe::gpu
