#include "gpu/ops/class_labels.hpp"

#include <algorithm>
#include <string>
#include <utility>

#include "base/status.hpp"
#include "gpu/ops/attributes.hpp"
#include "gpu/ops/texts.hpp"

namespace troupe::gpu {
namespace {

class LabelKernel final : public Kernel {
 public:
  LabelKernel(std::unique_ptr<Kernel> places, std::vector<std::string> labels, const ValueInfo& out)
      : places_(std::move(places)),
        labels_(std::move(labels)),
        room_(RoomForTexts(out)),
        rows_(out.elements()) {}

  [[nodiscard]] Bytes scratch() const override { return Places() + places_->scratch(); }
  absl::Status Run(In in, Out out, std::byte* scratch) const override {
    std::vector<TensorView> inner(out.begin(), out.end());
    inner[0] = {proto::INT64, out[0].shape, scratch};
    TROUPE_RETURN_IF_ERROR(places_->Run(in, inner, scratch + Places().count()));
    TextWriter writer(out[0], room_);
    for (std::int64_t row = 0; row < rows_; ++row)
      TROUPE_RETURN_IF_ERROR(
          writer.Add(labels_[static_cast<std::size_t>(Data<std::int64_t>(inner[0])[row])]));
    return absl::OkStatus();
  }

 private:
  [[nodiscard]] Bytes Places() const {
    return AlignUp(Bytes(static_cast<std::uint64_t>(rows_) * sizeof(std::int64_t)), Bytes(64));
  }
  std::unique_ptr<Kernel> places_;
  std::vector<std::string> labels_;
  Bytes room_;
  std::int64_t rows_;
};

}  // namespace

Inferred WithTextLabels(const StepContext& ctx, Inferred inferred) {
  const auto texts = TextList(ctx, "classlabels_strings");
  if (!inferred.ok() || texts.empty()) return inferred;
  std::uint64_t longest = 0;
  for (const std::string* text : texts) longest = std::max<std::uint64_t>(longest, text->size());
  ValueInfo& labels = (*inferred)[0];
  labels.type = proto::BYTES;
  MakesTexts(labels, BoundOf(labels.elements(), longest));
  return inferred;
}

Made MakeTextLabels(MakeFunction make, const StepContext& ctx, Infos in, Infos out) {
  std::vector<ValueInfo> inner(out.begin(), out.end());
  inner[0].type = proto::INT64;
  inner[0].makes_texts = false;
  TROUPE_ASSIGN_OR_RETURN(std::unique_ptr<Kernel> places, make(ctx, in, inner));
  std::vector<std::string> labels;
  for (const std::string* text : TextList(ctx, "classlabels_strings")) labels.push_back(*text);
  return std::make_unique<LabelKernel>(std::move(places), std::move(labels), out[0]);
}

}  // namespace troupe::gpu
