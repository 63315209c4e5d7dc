#include "gpu/ops/row_product.hpp"

#include <algorithm>
#include <array>
#include <utility>

#include "gpu/ops/activation.hpp"
#include "gpu/ops/bfloat_rows.hpp"
#include "gpu/ops/panel_rows.hpp"
#include "gpu/ops/parallel_ranges.hpp"

namespace troupe::gpu {
namespace {

constexpr std::int64_t kDepthBlock = 16;

struct Sizes {
  std::int64_t depth = 0, columns = 0;
  bool bf16 = false;  // the weights, in pairs of rows; else FP32
  [[nodiscard]] std::int64_t block() const { return bf16 ? 2 * kDepthBlock : kDepthBlock; }
  // Elements of a panel, whose last block may be padded.
  [[nodiscard]] std::int64_t panel() const {
    return (depth + block() - 1) / block() * block() * kPanelColumns;
  }
};

// The third input, added to each column: before the scale, or after it.
enum class Added { kNothing, kBefore, kAfter };

class RowProduct final : public Kernel {
 public:
  RowProduct(const Sizes& sizes, Added added, float scale, float after, FusedActivation activation)
      : sizes_(sizes), added_(added), scale_(scale), after_(after), activation_(activation) {}
  // A row is rounded as the rows of larger products are: a request's answer does not depend on its batch.
  [[nodiscard]] Bytes scratch() const override {
    return Bytes(sizes_.bf16 ? static_cast<std::uint64_t>(sizes_.depth) * sizeof(float) : 0);
  }
  absl::Status Run(In in, Out out, std::byte* scratch) const override {
    const float* row = Data<float>(in[0]);
    if (sizes_.bf16) {
      RoundToBfloats(row, reinterpret_cast<float*>(scratch), sizes_.depth);
      row = reinterpret_cast<const float*>(scratch);
    }
    const std::int64_t panels = (sizes_.columns + kPanelColumns - 1) / kPanelColumns;
    ParallelRanges(panels, sizes_.depth * kPanelColumns, [&](std::int64_t first, std::int64_t last) {
      for (std::int64_t panel = first; panel < last; ++panel) RunPanel(in, row, out, panel);
    });
    return absl::OkStatus();
  }

 private:
  void RunPanel(In in, const float* row, Out out, std::int64_t panel) const {
    alignas(64) std::array<float, kPanelColumns> sums;
    const std::int64_t place = panel * sizes_.panel() * (sizes_.bf16 ? 2 : 4);
    multiply_(row, in[1].data + place, sizes_.depth, sums.data());
    const std::int64_t begin = panel * kPanelColumns;
    const std::int64_t count = std::min(kPanelColumns, sizes_.columns - begin);
    const float* addend = added_ == Added::kNothing ? nullptr : Data<float>(in[2]) + begin;
    float* to = MutableData<float>(out[0]) + begin;
    for (std::int64_t j = 0; j < count; ++j) {
      float sum = sums[static_cast<std::size_t>(j)];
      if (added_ == Added::kBefore) sum += addend[j];
      sum *= scale_;
      if (added_ == Added::kAfter) sum = (sum + addend[j]) * after_;
      to[j] = sum;
    }
    if (activation_.row == nullptr) return;
    const auto* data = reinterpret_cast<std::byte*>(to);
    activation_.row({count, {data}, {1}, reinterpret_cast<std::byte*>(to), &activation_.parameters});
  }

  const Sizes sizes_;
  const MultiplyPanel multiply_ = FindMultiplyPanel(sizes_.bf16);
  const Added added_;
  const float scale_, after_;
  const FusedActivation activation_;
};

bool IsOneRow(const dnnl::memory::desc& desc, std::int64_t length) {
  const Shape dims = desc.dims();
  return !dims.empty() && dims.back() == length && Product(dims) == length && IsRowMajor(desc);
}

// [panels, depth / 16, 16, 64], which is one panel after the other; of BF16 [panels, depth / 32, 16, 64, 2].
bool IsInPanels(const dnnl::memory::desc& weights, const Sizes& sizes) {
  const auto& blocking = weights.data.format_desc.blocking;
  const int rank = weights.data.ndims;
  const int blocks = sizes.bf16 ? 3 : 2;
  if (!IsExpressible(weights) || blocking.inner_nblks != blocks) return false;
  if (sizes.bf16 && (blocking.inner_idxs[2] != rank - 2 || blocking.inner_blks[2] != 2)) return false;
  return blocking.inner_idxs[0] == rank - 2 && blocking.inner_blks[0] == kDepthBlock &&
         blocking.inner_idxs[1] == rank - 1 && blocking.inner_blks[1] == kPanelColumns &&
         blocking.strides[rank - 2] == sizes.block() * kPanelColumns &&
         blocking.strides[rank - 1] == sizes.panel();
}

}  // namespace

absl::StatusOr<std::unique_ptr<Kernel>> MakeRowProduct(const StepContext& ctx, const Multiplication& product,
                                                       const dnnl::memory::desc& given) {
  const Shape& b = product.b_dims;
  if (b.size() < 2) return nullptr;
  const Sizes sizes{b[b.size() - 2], b.back(), IsBf16(given)};
  if (sizes.depth % kDepthBlock != 0 || Product(b) != sizes.depth * sizes.columns || sizes.columns < 1)
    return nullptr;
  if (!IsOneRow(product.a, sizes.depth) || !IsOneRow(product.out, sizes.columns) || !IsInPanels(given, sizes))
    return nullptr;
  if (product.bias && product.addend) return nullptr;
  const auto& added = product.bias ? product.bias : product.addend;
  if (added && !IsOneRow(added, sizes.columns)) return nullptr;
  // The factor belongs to the sum with an addend.
  if (!product.addend && product.after_addend != 1) return nullptr;
  TROUPE_ASSIGN_OR_RETURN(const FusedActivation activation, FindFusedActivation(ctx));
  const Added how = product.bias ? Added::kBefore : (product.addend ? Added::kAfter : Added::kNothing);
  return std::make_unique<RowProduct>(sizes, how, product.scale, product.after_addend, activation);
}

}  // namespace troupe::gpu
