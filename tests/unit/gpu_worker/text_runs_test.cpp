// Runs whose inputs and outputs are texts, on the engine's own plans: what they take of the device, and what is told.
#include "gmock/gmock.h"
#include "gpu/engine/plan.hpp"
#include "tests/packed_texts.hpp"
#include "tests/unit/gpu_worker/runner_fixture.hpp"

namespace troupe::gpu::test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

class TextRunsTest : public RunnerTest {
 protected:
  static std::unique_ptr<Device> MakeReal(VirtualDeviceOptions options) {
    options.builder = [](const proto::Model& model, std::span<const std::byte> weights,
                         std::span<const proto::TensorSpec> inputs,
                         int threads) { return Plan::Build(model, weights, inputs, threads); };
    return MakePlain(std::move(options));
  }
  TextRunsTest() : RunnerTest(&MakeReal) {
    proto::Model model;
    model.set_format_version(1);
    model.set_opset(15);
    *model.add_inputs() = Spec("x", {-1}, proto::BYTES);
    *model.add_outputs() = Spec("y", {-1}, proto::BYTES);
    proto::Step& step = *model.add_steps();
    step.set_op("Identity");
    step.add_inputs("x");
    step.add_outputs("y");
    copy_ = PlaceModel(*host_, "m", model, std::vector<std::byte>(64));
    SwapIn(1, copy_);
    Await(1);
  }

  const proto::WorkerOutcome& Ask(std::uint64_t sequence, const std::vector<std::byte>& bytes,
                                  std::int64_t count) {
    proto::Tensor tensor;
    *tensor.mutable_spec() = Spec("x", {count}, proto::BYTES);
    tensor.mutable_data()->set_inlined(bytes.data(), bytes.size());
    input_ = tensor;
    Run(sequence, "m", 1, 0, 0, &copy_);
    return Await(sequence);
  }

  static std::vector<std::string> Answer(const proto::WorkerOutcome& outcome) {
    const std::string& bytes = outcome.run().outputs(0).data().inlined();
    return UnpackTexts(std::as_bytes(std::span(bytes)));
  }

  proto::HostCopy copy_;
};

TEST_F(TextRunsTest, OnePlanAnswersTextsOfManyLengths) {
  const std::vector<std::string> texts = {"one", "", "three \xff"};
  const proto::WorkerOutcome& outcome = Ask(2, PackTexts(texts), 3);
  ASSERT_EQ(outcome.code(), 0) << outcome.message();
  EXPECT_EQ(Answer(outcome), texts);
  const proto::Tensor& answered = outcome.run().outputs(0);
  EXPECT_EQ(answered.data().inlined().size(), PackTexts(texts).size());
  EXPECT_THAT(answered.spec().shape(), ElementsAre(3));
  EXPECT_EQ(answered.spec().text_bytes(), 0U);
  EXPECT_EQ(outcome.bytes(),
            2 * PackTexts(texts).size());  // what there is crosses the link, not what there is room for
  EXPECT_EQ(Answer(Ask(3, PackTexts({"x", std::string(100, 'y'), ""}), 3)),
            (std::vector<std::string>{"x", std::string(100, 'y'), ""}));
  EXPECT_EQ(preparer_->cache().size(), 1U);
  // Beyond its room another plan is made.
  const std::string large(5000, 'z');
  EXPECT_EQ(Answer(Ask(4, PackTexts({large, "", ""}), 3)), (std::vector<std::string>{large, "", ""}));
  EXPECT_EQ(preparer_->cache().size(), 2U);
  EvictAll();
  EXPECT_EQ(memory_->memory().free, memory_->memory().total);
}

TEST_F(TextRunsTest, LengthsThatLieReadNothingOfOtherRuns) {
  EXPECT_EQ(Ask(2, PackTexts({"secret", std::string(60, 's')}), 2).code(), 0);
  auto lies = PackTexts({"a", "b"});
  lies[5] = std::byte{50};  // within the plan's room, where an earlier run's texts lay
  const proto::WorkerOutcome& outcome = Ask(3, lies, 2);
  EXPECT_EQ(outcome.code(), CodeOf(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(outcome.message(), HasSubstr("text 1 says it has 50 bytes, but only 1 are left"));
  EXPECT_EQ(outcome.run().outputs_size(), 0);
}

TEST(CheckRunInputs, TextsTakeTheirLengthsAndAtMostTheLimit) {
  const auto check = [](std::size_t bytes, std::int64_t count) {
    proto::RunOrder order;
    proto::Tensor& tensor = *order.add_inputs();
    *tensor.mutable_spec() = Spec("x", {count}, proto::BYTES);
    tensor.mutable_data()->set_inlined(std::string(bytes, 0));
    return CheckRunInputs(order);
  };
  EXPECT_TRUE(check(12, 3).ok());
  EXPECT_TRUE(check(std::size_t{16} << 20, 1).ok());
  EXPECT_EQ(check((std::size_t{16} << 20) + 1, 1).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(check((std::size_t{16} << 20) + 1, 1).message(), HasSubstr("x BYTES [1] takes 16777217 bytes"));
  EXPECT_THAT(check(4, std::int64_t{1} << 30).message(),
              HasSubstr("too few for the lengths of 1073741824 texts"));
}

}  // namespace
}  // namespace troupe::gpu::test
