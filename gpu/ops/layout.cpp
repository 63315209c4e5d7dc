#include "gpu/ops/layout.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.hpp"
#include "gpu/ops/dnnl_layout.hpp"
#include "gpu/ops/texts.hpp"

namespace troupe::gpu {
namespace {

constexpr int kPackerVersion = 1;
// The first word tells the type of the elements.
constexpr std::int64_t kFloatMagic = 0x3159414C50525454;  // "TTRPLAY1"
constexpr std::int64_t kBf16Magic = 0x3259414C50525454;   // "TTRPLAY2"
constexpr int kMaxRank = 12;
constexpr int kMaxBlocks = 4;
constexpr std::int64_t kMaxBlock = 256;
constexpr std::int64_t kMaxElements = std::int64_t{1} << 40;

std::string InstructionSet() {
  const dnnl::cpu_isa isa = dnnl::get_effective_cpu_isa();
  switch (isa) {
    case dnnl::cpu_isa::sse41:
      return "sse41";
    case dnnl::cpu_isa::avx:
      return "avx";
    case dnnl::cpu_isa::avx2:
      return "avx2";
    case dnnl::cpu_isa::avx2_vnni:
      return "avx2_vnni";
    case dnnl::cpu_isa::avx512_core:
      return "avx512";
    case dnnl::cpu_isa::avx512_core_vnni:
      return "avx512_vnni";
    case dnnl::cpu_isa::avx512_core_bf16:
      return "avx512_bf16";
    default:
      return absl::StrCat("isa", static_cast<int>(isa));
  }
}

// What a layout string says: fields in this order, each 8 bytes little-endian.
struct LayoutFields {
  bool bf16 = false;  // else FP32
  std::vector<std::int64_t> dims;
  std::vector<std::int64_t> padded;
  std::vector<std::int64_t> strides;
  std::vector<std::int64_t> blocks;         // sizes, outermost first
  std::vector<std::int64_t> block_indices;  // the dimension that each block splits
};

// One level of nesting of the storage order, outermost first once sorted.
struct Loop {
  std::int64_t dim;
  std::int64_t size;
  std::int64_t stride;
};

absl::Status Malformed(const char* what) {
  return absl::InvalidArgumentError(absl::StrCat("malformed device layout: ", what));
}

absl::StatusOr<LayoutFields> Decode(std::string_view layout) {
  if (layout.size() % 8 != 0 || layout.size() < 24) return Malformed("wrong length");
  std::vector<std::int64_t> words(layout.size() / 8);
  std::memcpy(words.data(), layout.data(), layout.size());
  const std::int64_t rank = words[1];
  const std::int64_t blocks = words[2];
  if (words[0] != kFloatMagic && words[0] != kBf16Magic) return Malformed("unknown form");
  if (rank < 1 || rank > kMaxRank || blocks < 0 || blocks > kMaxBlocks) return Malformed("rank out of range");
  if (words.size() != static_cast<std::size_t>(3 + rank * 3 + blocks * 2)) return Malformed("wrong length");
  LayoutFields fields;
  fields.bf16 = words[0] == kBf16Magic;
  auto at = words.begin() + 3;
  for (auto* list : {&fields.dims, &fields.padded, &fields.strides}) {
    list->assign(at, at + rank);
    at += rank;
  }
  fields.blocks.assign(at, at + blocks);
  fields.block_indices.assign(at + blocks, words.end());
  return fields;
}

// The storage loops from outermost to innermost; sizes are those of padded dimensions.
std::vector<Loop> LoopsOf(const LayoutFields& fields) {
  std::vector<std::int64_t> outer = fields.padded;
  std::int64_t inner = 1;
  for (std::size_t i = 0; i < fields.blocks.size(); ++i) {
    outer[static_cast<std::size_t>(fields.block_indices[i])] /= fields.blocks[i];
    inner *= fields.blocks[i];
  }
  std::vector<Loop> loops;
  for (std::size_t d = 0; d < outer.size(); ++d) {
    loops.push_back({static_cast<std::int64_t>(d), outer[d], fields.strides[d]});
  }
  std::ranges::stable_sort(loops, [](const Loop& a, const Loop& b) { return a.stride > b.stride; });
  for (std::size_t i = 0; i < fields.blocks.size(); ++i) {
    inner /= fields.blocks[i];
    loops.push_back({fields.block_indices[i], fields.blocks[i], inner});
  }
  std::erase_if(loops, [](const Loop& loop) { return loop.size == 1; });
  return loops;
}

std::int64_t ProductOf(std::span<const std::int64_t> values) {
  return std::accumulate(values.begin(), values.end(), std::int64_t{1}, std::multiplies<>());
}

// Dimensions from outermost to innermost; of two with one stride the one with several blocks is outside.
std::vector<std::size_t> StorageOrder(const LayoutFields& fields) {
  std::vector<std::int64_t> outer = fields.padded;
  for (std::size_t i = 0; i < fields.blocks.size(); ++i) {
    outer[static_cast<std::size_t>(fields.block_indices[i])] /= fields.blocks[i];
  }
  std::vector<std::size_t> order(fields.dims.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::stable_sort(order, [&](std::size_t a, std::size_t b) {
    return std::pair(fields.strides[a], outer[a]) > std::pair(fields.strides[b], outer[b]);
  });
  return order;
}

// Dense, within limits, padded by less than one block: every offset lies inside ProductOf(padded) elements.
absl::Status CheckFields(const LayoutFields& fields) {
  std::vector<std::int64_t> block_of(fields.dims.size(), 1);
  for (std::size_t i = 0; i < fields.blocks.size(); ++i) {
    const std::int64_t d = fields.block_indices[i];
    if (d < 0 || d >= static_cast<std::int64_t>(fields.dims.size()))
      return Malformed("block of no dimension");
    if (fields.blocks[i] < 2 || fields.blocks[i] > kMaxBlock) return Malformed("block size");
    block_of[static_cast<std::size_t>(d)] *= fields.blocks[i];
  }
  std::int64_t total = 1;
  for (std::size_t d = 0; d < fields.dims.size(); ++d) {
    if (fields.dims[d] < 1 || fields.dims[d] > kMaxElements) return Malformed("dimension");
    const std::int64_t rounded = (fields.dims[d] + block_of[d] - 1) / block_of[d] * block_of[d];
    if (fields.padded[d] != rounded) return Malformed("padded dimension");
    if (rounded > kMaxElements / total) return Malformed("too many elements");
    total *= rounded;
  }
  // Strides follow from the order of the dimensions, also where a dimension has one block and its stride
  // moves nothing.
  std::int64_t stride = ProductOf(fields.blocks);
  const std::vector<std::size_t> order = StorageOrder(fields);
  for (auto d = order.rbegin(); d != order.rend(); ++d) {
    if (fields.strides[*d] != stride) return Malformed("storage is not dense");
    stride *= fields.padded[*d] / block_of[*d];
  }
  return absl::OkStatus();
}

absl::StatusOr<LayoutFields> Parse(std::string_view layout) {
  TROUPE_ASSIGN_OR_RETURN(LayoutFields fields, Decode(layout));
  TROUPE_RETURN_IF_ERROR(CheckFields(fields));
  return fields;
}

LayoutFields FieldsOf(const dnnl_memory_desc_t& data) {
  const auto& blocking = data.format_desc.blocking;
  LayoutFields fields;
  fields.bf16 = data.data_type == dnnl_bf16;
  fields.dims.assign(data.dims, data.dims + data.ndims);
  fields.padded.assign(data.padded_dims, data.padded_dims + data.ndims);
  fields.strides.assign(blocking.strides, blocking.strides + data.ndims);
  fields.blocks.assign(blocking.inner_blks, blocking.inner_blks + blocking.inner_nblks);
  fields.block_indices.assign(blocking.inner_idxs, blocking.inner_idxs + blocking.inner_nblks);
  return fields;
}

dnnl::memory::desc BuildDesc(const LayoutFields& fields) {
  dnnl_memory_desc_t data{};
  data.ndims = static_cast<int>(fields.dims.size());
  data.data_type = fields.bf16 ? dnnl_bf16 : dnnl_f32;
  data.format_kind = dnnl_blocked;
  std::ranges::copy(fields.dims, data.dims);
  std::ranges::copy(fields.padded, data.padded_dims);
  std::ranges::copy(fields.strides, data.format_desc.blocking.strides);
  data.format_desc.blocking.inner_nblks = static_cast<int>(fields.blocks.size());
  std::ranges::copy(fields.blocks, data.format_desc.blocking.inner_blks);
  std::ranges::copy(fields.block_indices, data.format_desc.blocking.inner_idxs);
  return dnnl::memory::desc(data);
}

}  // namespace

std::string DeviceTarget() {
  return absl::StrCat("cpu-", InstructionSet(), "/", kPackerVersion);
}

absl::StatusOr<Bytes> LayoutBytes(std::string_view layout) {
  TROUPE_ASSIGN_OR_RETURN(const LayoutFields fields, Parse(layout));
  return Bytes(static_cast<std::uint64_t>(ProductOf(fields.padded)) * (fields.bf16 ? 2 : sizeof(float)));
}

absl::StatusOr<Bytes> ValueBytes(const ValueInfo& value) {
  if (!value.layout.empty()) return LayoutBytes(value.layout);
  TROUPE_ASSIGN_OR_RETURN(const std::int64_t elements, CountElements(value.shape));
  const Bytes cells(static_cast<std::uint64_t>(elements) * CellSize(value.type));
  return value.makes_texts ? cells + RoomForTexts(value) : cells;
}

dnnl::memory::desc RowMajorDesc(std::span<const std::int64_t> dims) {
  std::vector<int> order(std::max<std::size_t>(dims.size(), 1));
  std::iota(order.begin(), order.end(), 0);
  const std::int64_t scalar = 1;
  return PermutedDesc(dims.empty() ? std::span(&scalar, 1) : dims, order);
}

dnnl::memory::desc PermutedDesc(std::span<const std::int64_t> dims, std::span<const int> order) {
  dnnl::memory::dims strides(dims.size());
  std::int64_t stride = 1;
  for (auto d = order.rbegin(); d != order.rend(); ++d) {
    strides[static_cast<std::size_t>(*d)] = stride;
    stride *= std::max<std::int64_t>(dims[static_cast<std::size_t>(*d)], 1);
  }
  return {dnnl::memory::dims(dims.begin(), dims.end()), dnnl::memory::data_type::f32, strides};
}

dnnl::memory::desc DescLike(const dnnl::memory::desc& like, std::span<const std::int64_t> dims) {
  LayoutFields fields = FieldsOf(like.data);
  const std::vector<std::size_t> order = StorageOrder(fields);
  fields.dims.assign(dims.begin(), dims.end());
  std::vector<std::int64_t> block(dims.size(), 1);
  for (std::size_t i = 0; i < fields.blocks.size(); ++i) {
    block[static_cast<std::size_t>(fields.block_indices[i])] *= fields.blocks[i];
  }
  std::int64_t stride = ProductOf(fields.blocks);
  for (auto d = order.rbegin(); d != order.rend(); ++d) {
    const std::int64_t outer = (dims[*d] + block[*d] - 1) / block[*d];
    fields.padded[*d] = outer * block[*d];
    fields.strides[*d] = stride;
    stride *= std::max<std::int64_t>(outer, 1);
  }
  return BuildDesc(fields);
}

bool IsBf16(const dnnl::memory::desc& desc) {
  return desc.data.data_type == dnnl_bf16;
}

dnnl::memory::desc InType(dnnl::memory::desc desc, dnnl::memory::data_type type) {
  desc.data.data_type = static_cast<dnnl_data_type_t>(type);
  return desc;
}

bool IsExpressible(const dnnl::memory::desc& desc) {
  const dnnl_memory_desc_t& data = desc.data;
  if (data.data_type != dnnl_f32 && data.data_type != dnnl_bf16) return false;
  if (data.format_kind != dnnl_blocked || data.extra.flags != 0) return false;
  if (data.offset0 != 0 || data.format_desc.blocking.inner_nblks > kMaxBlocks) return false;
  return CheckFields(FieldsOf(data)).ok();
}

std::int64_t ChannelBlock(const dnnl::memory::desc& desc) {
  const dnnl_memory_desc_t& data = desc.data;
  const auto& blocking = data.format_desc.blocking;
  if (!IsExpressible(desc) || IsBf16(desc) || data.ndims < 3 || blocking.inner_nblks != 1 ||
      blocking.inner_idxs[0] != 1)
    return 0;
  const std::int64_t block = blocking.inner_blks[0];
  if (data.dims[1] % block != 0) return 0;
  std::int64_t stride = block;
  for (int d = data.ndims - 1; d >= 2; --d) {
    if (blocking.strides[d] != stride) return 0;
    stride *= data.dims[d];
  }
  if (blocking.strides[1] != stride) return 0;
  const bool whole = data.dims[0] == 1 || blocking.strides[0] == stride * (data.dims[1] / block);
  return whole ? block : 0;
}

bool IsPadded(const dnnl::memory::desc& desc) {
  const LayoutFields fields = FieldsOf(desc.data);
  return fields.dims != fields.padded;
}

bool IsRowMajor(const dnnl::memory::desc& desc) {
  if (!IsExpressible(desc) || IsBf16(desc)) return false;
  if (IsPadded(desc)) return false;
  const LayoutFields fields = FieldsOf(desc.data);
  return std::ranges::is_sorted(LoopsOf(fields), {}, &Loop::dim);
}

std::string LayoutOf(const dnnl::memory::desc& desc) {
  if (IsRowMajor(desc)) return {};
  const LayoutFields fields = FieldsOf(desc.data);
  std::vector<std::int64_t> words = {fields.bf16 ? kBf16Magic : kFloatMagic,
                                     static_cast<std::int64_t>(fields.dims.size()),
                                     static_cast<std::int64_t>(fields.blocks.size())};
  for (const auto* list :
       {&fields.dims, &fields.padded, &fields.strides, &fields.blocks, &fields.block_indices}) {
    words.insert(words.end(), list->begin(), list->end());
  }
  return {reinterpret_cast<const char*>(words.data()), words.size() * 8};
}

absl::StatusOr<dnnl::memory::desc> WeightsDescOf(std::string_view layout,
                                                 std::span<const std::int64_t> dims) {
  if (layout.empty()) return RowMajorDesc(dims);
  TROUPE_ASSIGN_OR_RETURN(const LayoutFields fields, Parse(layout));
  if (!std::ranges::equal(fields.dims, dims)) {
    return absl::InvalidArgumentError(absl::StrCat("a device layout for shape ", FormatShape(fields.dims),
                                                   " on a tensor of shape ", FormatShape(dims)));
  }
  return BuildDesc(fields);
}

absl::StatusOr<dnnl::memory::desc> DescOf(std::string_view layout, std::span<const std::int64_t> dims) {
  auto desc = WeightsDescOf(layout, dims);
  if (desc.ok() && IsBf16(*desc)) return Malformed("BF16, where only FP32 can be read");
  return desc;
}

bool ComputesBf16() {
  switch (dnnl::get_effective_cpu_isa()) {
    case dnnl::cpu_isa::avx512_core_bf16:
    case dnnl::cpu_isa::avx512_core_amx:
      return true;
    default:
      return false;
  }
}

}  // namespace troupe::gpu
