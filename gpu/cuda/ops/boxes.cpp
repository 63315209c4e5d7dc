#include "gpu/cuda/ops/boxes.hpp"

#include <algorithm>
#include <limits>

namespace troupe::gpu::cuda {
namespace {

constexpr std::int64_t kNarrowest = std::numeric_limits<std::int32_t>::max();
constexpr std::int32_t kWidest = 16;  // bytes

bool IsAligned(const void* pointer, std::int64_t bytes) {
  return reinterpret_cast<std::uintptr_t>(pointer) % static_cast<std::uintptr_t>(bytes) == 0;
}

// Whether one dimension continues the next inner one in all places.
bool GoesOn(std::initializer_list<Strides*> places, int outer, int inner, std::int64_t inner_size) {
  return std::ranges::all_of(
      places, [&](const Strides* place) { return place->by[outer] == place->by[inner] * inner_size; });
}

bool IsNarrow(const Box& box, std::initializer_list<Strides*> places) {
  std::int64_t count = 1;
  for (int d = 0; d < box.rank; ++d) {
    if (box.size[d] > kNarrowest || (count *= box.size[d]) > kNarrowest) return false;
  }
  return std::ranges::all_of(places, [&](const Strides* place) {
    std::int64_t below = 0;  // of the base
    std::int64_t above = 0;
    for (int d = 0; d < box.rank; ++d) {
      const std::int64_t reach = place->by[d] * std::max<std::int64_t>(box.size[d] - 1, 0);
      (reach < 0 ? below : above) += reach;
    }
    // Each part of the sum, and each stride of a dimension in which it is used.
    return below >= -kNarrowest && above <= kNarrowest && place->base + below >= -kNarrowest &&
           place->base + above <= kNarrowest && place->base >= -kNarrowest && place->base <= kNarrowest;
  });
}

// Whether four neighbours of the last dimension lie together from a multiple of four on, or are one number.
bool LieInFours(const Box& box, const Strides& place, const void* data) {
  const int last = box.rank - 1;
  if (place.by[last] == 0) return true;
  if (place.by[last] != 1 || place.base % kFour != 0 || !IsAligned(data, sizeof(float) * kFour)) return false;
  return std::all_of(place.by, place.by + last, [](std::int64_t by) { return by % kFour == 0; });
}

bool GroupsBy(const Box& box, const Strides& place, std::int64_t factor) {
  const int last = box.rank - 1;
  return place.by[last] == 1 && place.base % factor == 0 &&
         std::all_of(place.by, place.by + last, [&](std::int64_t by) { return by % factor == 0; });
}

void GroupBy(const Box& box, Strides& place, std::int64_t factor) {
  place.base /= factor;
  for (int d = 0; d + 1 < box.rank; ++d) place.by[d] /= factor;
}

}  // namespace

bool Narrow(std::initializer_list<std::int64_t> counts) {
  return std::ranges::all_of(counts, [](std::int64_t count) { return count <= kNarrowest; });
}

void Simplify(Box& box, std::initializer_list<Strides*> places) {
  int rank = 0;  // of what is done
  for (int d = 0; d < box.rank; ++d) {
    if (box.size[d] == 1) continue;
    const bool joins = rank > 0 && GoesOn(places, rank - 1, d, box.size[d]);
    const int to = joins ? rank - 1 : rank++;
    box.size[to] = joins ? box.size[to] * box.size[d] : box.size[d];
    for (Strides* const place : places) place->by[to] = place->by[d];
  }
  box.rank = rank;
  box.narrow = IsNarrow(box, places);
}

UnaryArguments InFours(UnaryArguments arguments) {
  if (arguments.count < kFour || !IsAligned(arguments.in, sizeof(float) * kFour) ||
      !IsAligned(arguments.out, sizeof(float) * kFour))
    return arguments;
  arguments.elements = arguments.count;
  arguments.count = (arguments.elements + kFour - 1) / kFour;
  return arguments;
}

BinaryArguments InFours(BinaryArguments arguments) {
  const Box& box = arguments.box;
  if (arguments.type != Element::kFp32 || arguments.other != Element::kFp32 ||
      arguments.op >= BinaryOp::kEqual || box.rank == 0 || arguments.count < kFour)
    return arguments;
  // The last elements of a row may be fewer where no other row follows.
  if ((box.rank > 1 && box.size[box.rank - 1] % kFour != 0) ||
      !IsAligned(arguments.out, sizeof(float) * kFour) || !LieInFours(box, arguments.in_a, arguments.a) ||
      !LieInFours(box, arguments.in_b, arguments.b))
    return arguments;
  arguments.elements = arguments.count;
  arguments.count = (arguments.elements + kFour - 1) / kFour;
  return arguments;
}

MoveArguments Widened(MoveArguments arguments) {
  Box& box = arguments.box;
  if (box.rank == 0 || arguments.count == 0) return arguments;
  std::int64_t& row = box.size[box.rank - 1];
  for (std::int32_t size = kWidest; size > arguments.element_size; size /= 2) {
    const std::int64_t factor = size / arguments.element_size;
    if (row % factor != 0 || !IsAligned(arguments.in, size) || !IsAligned(arguments.out, size) ||
        !GroupsBy(box, arguments.from, factor) || !GroupsBy(box, arguments.to, factor))
      continue;
    GroupBy(box, arguments.from, factor);
    GroupBy(box, arguments.to, factor);
    row /= factor;
    arguments.count /= factor;
    arguments.element_size = size;
    return arguments;
  }
  return arguments;
}

GatherArguments Widened(GatherArguments arguments) {
  for (std::int32_t size = kWidest; size > arguments.element_size; size /= 2) {
    const std::int64_t factor = size / arguments.element_size;
    if (arguments.block == 0 || arguments.block % factor != 0 || !IsAligned(arguments.in, size) ||
        !IsAligned(arguments.out, size))
      continue;
    arguments.block /= factor;
    arguments.count /= factor;
    arguments.element_size = size;
    return arguments;
  }
  return arguments;
}

}  // namespace troupe::gpu::cuda
