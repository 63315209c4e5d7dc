// Layouts as oneDNN descriptors; only the sources that speak to oneDNN include this.
#pragma once

#include <oneapi/dnnl/dnnl.hpp>

#include <span>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "gpu/ops/operator.hpp"

namespace troupe::gpu {

// A dense FP32 descriptor; a scalar becomes one dimension of size 1.
[[nodiscard]] dnnl::memory::desc RowMajorDesc(std::span<const std::int64_t> dims);
// Dense, but with the dimensions stored in `order` from outermost to innermost.
[[nodiscard]] dnnl::memory::desc PermutedDesc(std::span<const std::int64_t> dims, std::span<const int> order);
// Dimensions `dims` stored in the order and the blocks of `like`, which has as many.
[[nodiscard]] dnnl::memory::desc DescLike(const dnnl::memory::desc& like, std::span<const std::int64_t> dims);
// True when the elements lie as in a row-major FP32 tensor, whatever the descriptor is called.
[[nodiscard]] bool IsRowMajor(const dnnl::memory::desc& desc);
// Some dimension is stored with more than its size: blocks of it are filled up with zeros.
[[nodiscard]] bool IsPadded(const dnnl::memory::desc& desc);
// The block of a dense tensor of batch, channels and places that is stored as [batch, blocks, places, channels of a block],
// with all blocks full; 0 for any other.
[[nodiscard]] std::int64_t ChannelBlock(const dnnl::memory::desc& desc);
// The same elements in the same places, in another type.
[[nodiscard]] dnnl::memory::desc InType(dnnl::memory::desc desc, dnnl::memory::data_type type);
[[nodiscard]] bool IsBf16(const dnnl::memory::desc& desc);
// True for what a layout can express: dense blocks with nothing extra, FP32, or BF16 as weights may be.
[[nodiscard]] bool IsExpressible(const dnnl::memory::desc& desc);
// The layout of an expressible descriptor; empty when it is row-major and FP32.
[[nodiscard]] std::string LayoutOf(const dnnl::memory::desc& desc);
// The descriptor of `layout` for a tensor of logical dimensions `dims`. Every field is checked: a layout may
// come from a hostile file, and oneDNN believes what a descriptor says.
absl::StatusOr<dnnl::memory::desc> DescOf(std::string_view layout, std::span<const std::int64_t> dims);
// The same for weights, whose layout may be one of BF16.
absl::StatusOr<dnnl::memory::desc> WeightsDescOf(std::string_view layout, std::span<const std::int64_t> dims);

}  // namespace troupe::gpu
