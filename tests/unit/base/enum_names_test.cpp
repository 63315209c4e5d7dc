#include "base/enum_names.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace troupe {
namespace {

enum class Fruit { kApple, kPear, kPlum };
constexpr std::array<EnumName<Fruit>, 2> kFruits = {{{"apple", Fruit::kApple}, {"pear", Fruit::kPear}}};

TEST(EnumNames, AValueIsFoundByItsWholeName) {
  EXPECT_EQ(FindNamed(kFruits, "pear"), Fruit::kPear);
  for (const char* const unknown : {"", "pea", "pears", "Pear", "plum"})
    EXPECT_EQ(FindNamed(kFruits, unknown), std::nullopt) << unknown;
}

TEST(EnumNames, EachNameIsThatOfItsValue) {
  for (const auto& [name, fruit] : kFruits) EXPECT_EQ(NameIn(kFruits, fruit), name);
  EXPECT_EQ(NameIn(kFruits, Fruit::kPlum), "") << "of a newer version";
}

TEST(EnumNames, ErrorsAndHelpHaveThemInOrder) {
  EXPECT_EQ(NamesIn(kFruits), "apple, pear");
  EXPECT_THAT(NameList(kFruits), testing::ElementsAre("apple", "pear"));
}

}  // namespace
}  // namespace troupe
