// Boxes made simpler, and the kernels' bodies on them, compared with plain loops over the boxes as they were:
// random shapes, strides, broadcasts and places of memory; and places beyond 32 bits, by arithmetic alone.
#include <algorithm>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "gmock/gmock.h"
#include "gpu/cuda/kernels/bodies.hpp"
#include "gpu/cuda/kernels/index_bodies.hpp"
#include "gpu/cuda/ops/boxes.hpp"
#include "gtest/gtest.h"

namespace troupe::gpu::test {
namespace {

using namespace cuda;  // NOLINT(google-build-using-namespace): the bodies and what they are told

class Draw {
 public:
  explicit Draw(unsigned seed) : random_(seed) {}
  std::int64_t Between(std::int64_t low, std::int64_t high) {
    return std::uniform_int_distribution<std::int64_t>(low, high)(random_);
  }
  bool Chance(int percent) { return Between(1, 100) <= percent; }

 private:
  std::mt19937_64 random_;
};

// By the definition.
std::int64_t PlaceOf(const Box& box, const Strides& strides, std::int64_t i) {
  std::int64_t place = strides.base;
  for (int d = box.rank; d-- > 0;) {
    place += i % box.size[d] * strides.by[d];
    i /= box.size[d];
  }
  return place;
}
std::int64_t ElementsIn(const Box& box) {
  std::int64_t count = 1;
  for (int d = 0; d < box.rank; ++d) count *= box.size[d];
  return count;
}

Box DrawBox(Draw& draw, std::int64_t largest) {
  Box box;
  box.rank = static_cast<std::int32_t>(draw.Between(0, 5));
  for (int d = 0; d < box.rank; ++d) box.size[d] = draw.Chance(25) ? 1 : draw.Between(2, largest);
  return box;
}
Strides Dense(const Box& box) {
  Strides strides;
  std::int64_t by = 1;
  for (int d = box.rank; d-- > 0; by *= box.size[d]) strides.by[d] = by;
  return strides;
}
// Of a tensor that broadcasts to the box.
Strides Broadcast(Draw& draw, const Box& box) {
  Strides strides;
  std::int64_t by = 1;
  for (int d = box.rank; d-- > 0;) {
    if (box.size[d] == 1 || draw.Chance(30)) continue;
    strides.by[d] = by;
    by *= box.size[d];
  }
  return strides;
}

TEST(CudaBoxes, SimplerOnesHaveTheSamePlaces) {
  int fewer = 0;
  for (unsigned seed = 0; seed < 3000; ++seed) {
    Draw draw(seed);
    const Box box = DrawBox(draw, 5);
    std::vector<Strides> places;
    for (int i = 0; i < 3; ++i) {
      places.push_back(draw.Chance(70) ? Broadcast(draw, box) : Dense(box));
      places.back().base = draw.Between(0, 9);
      for (int d = 0; d < box.rank; ++d)
        if (draw.Chance(10)) places.back().by[d] = draw.Between(-50, 50);
    }
    Box simple = box;
    std::vector<Strides> now = places;
    Simplify(simple, {&now[0], &now[1], &now[2]});
    EXPECT_TRUE(simple.narrow);
    EXPECT_LE(simple.rank, box.rank);
    fewer += simple.rank < box.rank ? 1 : 0;
    ASSERT_EQ(ElementsIn(simple), ElementsIn(box)) << seed;
    for (std::int64_t i = 0; i < ElementsIn(box); ++i)
      for (std::size_t which = 0; which < places.size(); ++which)
        ASSERT_EQ(OffsetOf(simple, now[which], i), PlaceOf(box, places[which], i)) << seed << " " << i;
  }
  EXPECT_GT(fewer, 1000);
}

TEST(CudaBoxes, NeighboursThatGoOnBecomeOne) {
  Box box{4, {6, 1, 5, 8}};
  Strides dense = Dense(box);
  Simplify(box, {&dense});
  EXPECT_EQ(box.rank, 1);
  EXPECT_EQ(box.size[0], 240);
  EXPECT_EQ(dense.by[0], 1);
  // A bias of the last dimension keeps it apart.
  Box two{3, {6, 5, 8}};
  Strides all = Dense(two);
  Strides bias{0, {0, 0, 1}};
  Simplify(two, {&all, &bias});
  EXPECT_EQ(two.rank, 2);
  EXPECT_THAT(std::vector(two.size, two.size + 2), testing::ElementsAre(30, 8));
  Box single{3, {1, 1, 1}};
  Strides none{7, {3, 2, 1}};
  Simplify(single, {&none});
  EXPECT_EQ(single.rank, 0);
  EXPECT_EQ(OffsetOf(single, none, 0), 7);
}

// By arithmetic alone: there is no such memory.
TEST(CudaBoxes, PlacesBeyond32BitsAreNotCutOff) {
  for (unsigned seed = 0; seed < 2000; ++seed) {
    Draw draw(seed);
    Box box;
    box.rank = static_cast<std::int32_t>(draw.Between(1, 4));
    for (int d = 0; d < box.rank; ++d) box.size[d] = draw.Between(2, 4000);
    Strides strides = draw.Chance(50) ? Dense(box) : Broadcast(draw, box);
    strides.base = draw.Chance(30) ? draw.Between(0, std::int64_t{1} << 33) : 0;
    for (int d = 0; d < box.rank; ++d)
      if (draw.Chance(20)) strides.by[d] = draw.Between(-(std::int64_t{1} << 32), std::int64_t{1} << 32);
    Box simple = box;
    Strides now = strides;
    Simplify(simple, {&now});
    const std::int64_t count = ElementsIn(box);
    for (int probe = 0; probe < 50; ++probe) {
      const std::int64_t i = probe == 0 ? count - 1 : draw.Between(0, count - 1);
      ASSERT_EQ(OffsetOf(simple, now, i), PlaceOf(box, strides, i)) << seed << " " << i;
    }
  }
}

TEST(CudaBoxes, WhatFits32BitsIsSaidToTheLastPlace) {
  constexpr std::int64_t kLast = std::numeric_limits<std::int32_t>::max();
  const auto narrow = [](std::vector<std::int64_t> sizes, const Strides& strides) {
    Box box;
    box.rank = static_cast<std::int32_t>(sizes.size());
    std::ranges::copy(sizes, box.size);
    Strides now = strides;
    Simplify(box, {&now});
    return box.narrow;
  };
  EXPECT_TRUE(narrow({kLast}, {0, {1}}));
  EXPECT_FALSE(narrow({kLast + 1}, {0, {1}})) << "as many elements are too many, whatever their places";
  EXPECT_FALSE(narrow({kLast + 1}, {0, {0}}));
  EXPECT_TRUE(narrow({2}, {0, {kLast}}));
  EXPECT_FALSE(narrow({2}, {0, {kLast + 1}}));
  EXPECT_FALSE(narrow({2}, {1, {kLast}})) << "with its base it is beyond";
  EXPECT_TRUE(narrow({3, 2}, {kLast, {-(kLast / 2), -1}}));
  EXPECT_FALSE(narrow({3, 2}, {0, {-(kLast / 2), -2}}));
  // The sum would fit, a part of it does not.
  EXPECT_FALSE(narrow({2, 3}, {0, {kLast, kLast / 2}}));
  EXPECT_TRUE(Narrow({kLast, 0}));
  EXPECT_FALSE(Narrow({1, kLast + 1}));
}

// Memory whose begin is at a multiple of 16 bytes, or some elements behind.
template <class T>
class Lines {
 public:
  Lines(std::size_t count, std::size_t behind) : words_(count * sizeof(T) / 16 + 4), behind_(behind) {}
  T* data() { return reinterpret_cast<T*>(words_.data()) + behind_; }

 private:
  std::vector<FourWords> words_;
  std::size_t behind_;
};

TEST(CudaBoxes, FunctionsOfFourAreThoseOfOne) {
  for (std::int64_t count = 1; count <= 37; ++count) {
    for (const std::size_t behind : {0U, 1U, 4U}) {
      Lines<float> in(40, behind);
      Lines<float> out(48, 0);
      for (std::int64_t i = 0; i < count; ++i) in.data()[i] = static_cast<float>(i) - 9;
      std::fill_n(out.data(), 48, 99.0F);
      const UnaryArguments now =
          InFours(UnaryArguments{count, in.data(), out.data(), Function{UnaryOp::kLeakyRelu, 0.5F, 0}});
      EXPECT_EQ(now.elements != 0, count >= 4 && behind != 1) << "what lies at multiples of four is taken so";
      for (std::int64_t i = 0; i < now.count; ++i) RunUnary(now, i);
      for (std::int64_t i = 0; i < count; ++i) {
        const float x = static_cast<float>(i) - 9;
        ASSERT_EQ(out.data()[i], x < 0 ? x / 2 : x) << count << " " << i;
      }
      EXPECT_EQ(out.data()[count], 99.0F) << "nothing behind the last one was written";
    }
  }
}

TEST(CudaBoxes, ArithmeticOfFourIsThatOfOne) {
  int fours = 0;
  int ones = 0;
  for (unsigned seed = 0; seed < 2000; ++seed) {
    Draw draw(seed);
    BinaryArguments arguments;
    Box box = DrawBox(draw, 9);
    if (box.rank > 0 && draw.Chance(60)) box.size[box.rank - 1] = 4 * draw.Between(1, 3);
    const Strides a_at = draw.Chance(50) ? Dense(box) : Broadcast(draw, box);
    const Strides b_at = Broadcast(draw, box);
    const std::int64_t count = ElementsIn(box);
    const auto behind = [&] { return static_cast<std::size_t>(draw.Chance(15) ? draw.Between(1, 3) : 0); };
    const auto room = static_cast<std::size_t>(count) + 8;
    Lines<float> a(room, behind());
    Lines<float> b(room, behind());
    Lines<float> out(room, behind());
    for (std::int64_t i = 0; i < count; ++i) {
      a.data()[i] = static_cast<float>(draw.Between(-99, 99));
      b.data()[i] = static_cast<float>(draw.Between(-99, 99));
    }
    std::fill_n(out.data(), count + 4, 99.0F);
    arguments.count = count;
    arguments.op = BinaryOp::kSub;
    arguments.type = arguments.other = Element::kFp32;
    arguments.box = box;
    arguments.in_a = a_at;
    arguments.in_b = b_at;
    arguments.a = a.data();
    arguments.b = b.data();
    arguments.out = out.data();
    arguments.after = {UnaryOp::kScale, 2, 0};
    Simplify(arguments.box, {&arguments.in_a, &arguments.in_b});
    arguments = InFours(arguments);
    ++(arguments.elements != 0 ? fours : ones);
    for (std::int64_t i = 0; i < arguments.count; ++i) RunBinary(arguments, i);
    for (std::int64_t i = 0; i < count; ++i) {
      const float x = a.data()[PlaceOf(box, a_at, i)];
      const float y = b.data()[PlaceOf(box, b_at, i)];
      ASSERT_EQ(out.data()[i], 2 * (x - y)) << seed << " " << i;
    }
    EXPECT_EQ(out.data()[count], 99.0F) << seed;
  }
  EXPECT_GT(fours, 300);
  EXPECT_GT(ones, 300);
}

TEST(CudaBoxes, ABiasIsAddedFourAtATime) {
  Lines<float> x(64 * 12, 0);
  Lines<float> bias(12, 0);
  BinaryArguments arguments;
  arguments.type = arguments.other = Element::kFp32;
  arguments.a = arguments.out = x.data();
  arguments.b = bias.data();
  const auto fours = [&](std::int64_t columns) {
    BinaryArguments now = arguments;
    now.box = {2, {64, columns}};
    now.count = 64 * columns;
    now.in_a = {0, {columns, 1}};
    now.in_b = {0, {0, 1}};
    Simplify(now.box, {&now.in_a, &now.in_b});
    return InFours(now).elements != 0;
  };
  EXPECT_TRUE(fours(12));
  EXPECT_FALSE(fours(11)) << "four of them would lie in two rows";
  arguments.b = bias.data() + 1;
  EXPECT_FALSE(fours(8)) << "the bias does not begin at a multiple of four";
  arguments.b = bias.data();
  arguments.op = BinaryOp::kLess;
  EXPECT_FALSE(fours(12)) << "its results are no numbers";
}

// A part of a tensor to a part of another one, whose dimensions may have changed places.
template <class T>
void MoveAsItShould(unsigned seed, int& widened) {
  Draw draw(seed);
  Box box = DrawBox(draw, 6);
  if (box.rank > 0 && draw.Chance(60)) box.size[box.rank - 1] = 4 * draw.Between(1, 3);
  // Each tensor is larger than the box by some in some dimensions.
  const auto place = [&](std::size_t& room, bool transposes) {
    Box around = box;
    for (int d = 0; d < box.rank; ++d)
      if (draw.Chance(30)) around.size[d] += 4 * draw.Between(0, 2);
    Strides strides = Dense(around);
    if (transposes && box.rank > 1 && draw.Chance(40)) {
      std::int64_t by = 1;
      for (int d = 0; d < box.rank; by *= around.size[d++]) strides.by[d] = by;
    }
    strides.base = draw.Chance(50) ? 4 * draw.Between(0, 2) : draw.Between(0, 5);
    room = static_cast<std::size_t>(ElementsIn(around)) + 16;
    return strides;
  };
  std::size_t in_room = 0;
  std::size_t out_room = 0;
  const Strides from = place(in_room, true);
  const Strides to = place(out_room, false);
  Lines<T> in(in_room, static_cast<std::size_t>(draw.Chance(20) ? 1 : 0));
  Lines<T> out(out_room, 0);
  for (std::size_t i = 0; i < in_room; ++i) in.data()[i] = static_cast<T>(i * 37 + 1);
  std::vector<T> expected(out_room, T{99});
  std::fill_n(out.data(), out_room, T{99});
  for (std::int64_t i = 0; i < ElementsIn(box); ++i)
    expected[static_cast<std::size_t>(PlaceOf(box, to, i))] = in.data()[PlaceOf(box, from, i)];
  MoveArguments arguments;
  arguments.count = ElementsIn(box);
  arguments.element_size = sizeof(T);
  arguments.box = box;
  arguments.from = from;
  arguments.to = to;
  arguments.in = in.data();
  arguments.out = out.data();
  Simplify(arguments.box, {&arguments.from, &arguments.to});
  arguments = Widened(arguments);
  widened += arguments.element_size > static_cast<std::int32_t>(sizeof(T)) ? 1 : 0;
  for (std::int64_t i = 0; i < arguments.count; ++i) RunMove(arguments, i);
  ASSERT_TRUE(std::equal(expected.begin(), expected.end(), out.data())) << seed << " of " << sizeof(T);
}

TEST(CudaBoxes, MovesOfLargerElementsAreTheSameMoves) {
  int widened[4] = {};
  for (unsigned seed = 0; seed < 1000; ++seed) {
    MoveAsItShould<std::uint8_t>(seed, widened[0]);
    MoveAsItShould<std::uint16_t>(seed, widened[1]);
    MoveAsItShould<std::uint32_t>(seed, widened[2]);
    MoveAsItShould<std::uint64_t>(seed, widened[3]);
  }
  for (const int times : widened) EXPECT_THAT(times, testing::AllOf(testing::Gt(100), testing::Lt(900)));
}

TEST(CudaBoxes, RowsThatIndicesChooseAreTheSameRows) {
  int widened = 0;
  for (unsigned seed = 0; seed < 500; ++seed) {
    Draw draw(seed);
    const std::int64_t outer = draw.Between(1, 3);
    const std::int64_t dim = draw.Between(1, 5);
    const std::int64_t block = draw.Between(1, 9);
    const std::int64_t chosen = draw.Between(1, 6);
    Lines<std::uint16_t> in(static_cast<std::size_t>(outer * dim * block), draw.Chance(20) ? 1 : 0);
    Lines<std::uint16_t> out(static_cast<std::size_t>(outer * chosen * block), 0);
    for (std::int64_t i = 0; i < outer * dim * block; ++i) in.data()[i] = static_cast<std::uint16_t>(i + 1);
    std::vector<std::int64_t> indices;
    // Sometimes the first one is outside.
    for (std::int64_t i = 0; i < chosen; ++i) indices.push_back(draw.Between(-dim, dim - 1));
    if (draw.Chance(33)) indices[0] = dim;
    std::int32_t trouble = 0;
    GatherArguments arguments;
    arguments.count = outer * chosen * block;
    arguments.element_size = 2;
    arguments.in = in.data();
    arguments.indices = indices.data();
    arguments.out = out.data();
    arguments.index_type = Element::kInt64;
    arguments.chosen = chosen;
    arguments.dim = dim;
    arguments.block = block;
    arguments.narrow = draw.Chance(50);
    arguments.trouble = &trouble;
    const GatherArguments now = Widened(arguments);
    widened += now.element_size > 2 ? 1 : 0;
    for (std::int64_t i = 0; i < now.count; ++i) RunGather(now, i);
    EXPECT_EQ(trouble != 0, indices[0] == dim);
    for (std::int64_t i = 0; i < arguments.count; ++i) {
      const std::int64_t place = i / block;
      std::int64_t index = indices[static_cast<std::size_t>(place % chosen)];
      const std::uint16_t expected =
          index == dim
              ? std::uint16_t{0}
              : in.data()[(place / chosen * dim + (index < 0 ? index + dim : index)) * block + i % block];
      ASSERT_EQ(out.data()[i], expected) << seed << " " << i;
    }
  }
  EXPECT_GT(widened, 100);
}

}  // namespace
}  // namespace troupe::gpu::test
