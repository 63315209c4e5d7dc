#include "base/nearest.hpp"

#include <gtest/gtest.h>

namespace troupe {
namespace {

TEST(DidYouMean, NamesTheWordThatWasMeant) {
  const std::vector<std::string> known = {"top", "gpu-memory", "gpu", "infer", "function"};
  EXPECT_EQ(DidYouMean("gpu-memroy", known), "; did you mean 'gpu-memory'?");
  EXPECT_EQ(DidYouMean("gpu_memory", known), "; did you mean 'gpu-memory'?");
  EXPECT_EQ(DidYouMean("functoin", known), "; did you mean 'function'?");
  EXPECT_EQ(DidYouMean("gpus", known), "; did you mean 'gpu'?");
  EXPECT_EQ(DidYouMean("tpo", known), "; did you mean 'top'?");
}

TEST(DidYouMean, IsSilentAboutAnotherWord) {
  const std::vector<std::string> known = {"top", "gpu", "infer"};
  for (const std::string word : {"foo", "ls", "publish", "", "x"})
    EXPECT_EQ(DidYouMean(word, known), "") << word;
  EXPECT_EQ(DidYouMean(std::string(1 << 20, 'x'), known), "");
  EXPECT_EQ(DidYouMean("top", {}), "");
}

}  // namespace
}  // namespace troupe
