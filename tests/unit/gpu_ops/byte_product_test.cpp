// Products of bytes: by oneDNN and by our loops they are what the definition gives, to the last bit.
#include "gpu/ops/byte_product.hpp"

#include <gtest/gtest.h>

#include <memory>
#include <new>

#include "base/random.hpp"

namespace troupe::gpu {
namespace {

std::int32_t StoredByte(proto::DataType type, std::byte value) {
  return type == proto::INT8 ? static_cast<std::int8_t>(value) : std::to_integer<std::int32_t>(value);
}

struct ProductCase {
  ByteMatrices m;
  std::vector<std::byte> a, b;
  std::vector<std::int32_t> zero_a, zero_b;

  [[nodiscard]] std::vector<std::int32_t> Defined() const {
    std::vector<std::int32_t> out;
    for (std::int64_t r = 0; r < m.rows; ++r) {
      for (std::int64_t c = 0; c < m.columns; ++c) {
        std::uint32_t sum = 0;
        for (std::int64_t k = 0; k < m.depth; ++k) {
          const std::int32_t x = StoredByte(m.a, a[static_cast<std::size_t>(r * m.depth + k)]) -
                                 zero_a[zero_a.size() == 1 ? 0 : static_cast<std::size_t>(r)];
          const std::int32_t y = StoredByte(m.b, b[static_cast<std::size_t>(k * m.columns + c)]) -
                                 zero_b[zero_b.size() == 1 ? 0 : static_cast<std::size_t>(c)];
          sum += static_cast<std::uint32_t>(x * y);
        }
        out.push_back(static_cast<std::int32_t>(sum));
      }
    }
    return out;
  }

  [[nodiscard]] std::vector<std::int32_t> Computed(ByteProduct::By by) const {
    proto::Step step;
    ScratchParts parts;
    const auto product = ByteProduct::Make({step}, m, parts, by);
    EXPECT_TRUE(product.ok()) << product.status();
    struct Free {
      void operator()(std::byte* memory) const { ::operator delete[](memory, std::align_val_t{64}); }
    };
    const std::unique_ptr<std::byte[], Free> scratch(new (std::align_val_t{64})
                                                         std::byte[parts.size().count()]);
    std::vector<std::int32_t> out(static_cast<std::size_t>(m.rows * m.columns), -1);
    EXPECT_TRUE(product->Run(a.data(), zero_a, b.data(), zero_b, out.data(), scratch.get()).ok());
    return out;
  }
};

std::vector<std::byte> RandomBytes(std::int64_t count, Random& random) {
  std::vector<std::byte> bytes;
  for (std::int64_t i = 0; i < count; ++i) bytes.push_back(static_cast<std::byte>(random.Below(256)));
  return bytes;
}

std::vector<std::int32_t> RandomZeros(std::int64_t count, proto::DataType type, Random& random) {
  std::vector<std::int32_t> zeros;
  for (std::int64_t i = 0; i < count; ++i)
    zeros.push_back(StoredByte(type, static_cast<std::byte>(random.Below(256))));
  return zeros;
}

TEST(ByteProduct, IsExactForEveryTypeAndEveryFormOfZeroPoints) {
  Random random(7);
  for (proto::DataType a : {proto::UINT8, proto::INT8}) {
    for (proto::DataType b : {proto::UINT8, proto::INT8}) {
      for (const bool per_row : {false, true}) {
        for (const auto& [rows, depth, columns] :
             std::vector<std::array<std::int64_t, 3>>{{1, 1, 1}, {1, 70, 33}, {5, 64, 16}, {17, 129, 40}}) {
          ProductCase test{{rows, depth, columns, a, b}, {}, {}, {}, {}};
          test.a = RandomBytes(rows * depth, random);
          test.b = RandomBytes(depth * columns, random);
          test.zero_a = RandomZeros(per_row ? rows : 1, a, random);
          test.zero_b = RandomZeros(per_row ? columns : 1, b, random);
          const std::vector<std::int32_t> want = test.Defined();
          EXPECT_EQ(test.Computed(ByteProduct::By::kBest), want);
          EXPECT_EQ(test.Computed(ByteProduct::By::kLoops), want);
        }
      }
    }
  }
}

// Sums of pairs in 16 bits would saturate here.
TEST(ByteProduct, TheLargestBytesDoNotSaturate) {
  ProductCase test{{2, 300, 20, proto::UINT8, proto::INT8}, {}, {}, {0}, {0}};
  test.a.assign(600, std::byte{255});
  for (const std::uint8_t byte : {0x7f, 0x80}) {
    test.b.assign(6000, std::byte{byte});
    const std::vector<std::int32_t> want = test.Defined();
    EXPECT_EQ(test.Computed(ByteProduct::By::kBest), want);
    EXPECT_EQ(test.Computed(ByteProduct::By::kLoops), want);
  }
}

TEST(ByteProduct, WithoutDepthIsZero) {
  const ProductCase test{{2, 0, 3, proto::INT8, proto::UINT8}, {}, {}, {5}, {7}};
  EXPECT_EQ(test.Computed(ByteProduct::By::kBest), std::vector<std::int32_t>(6, 0));
}

}  // namespace
}  // namespace troupe::gpu
