#include "cluster/object_references.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace troupe::cluster::object_references_test {
namespace {

using testing::ElementsAre;

TEST(ObjectReferences, AFunctionNeedsItsFileAndItsModelInEachLayout) {
  proto::FunctionRecord function;
  function.set_onnx_digest("1-onnx");
  function.set_model_digest("2-model");
  function.set_weights_digest("3-weights");
  auto& packed = *function.add_packed();
  packed.set_model_digest("4-packed");
  packed.set_weights_digest("5-packed-weights");
  Digests digests{"0-other"};
  AddObjectsOf(function, digests);
  EXPECT_THAT(digests,
              ElementsAre("0-other", "1-onnx", "2-model", "3-weights", "4-packed", "5-packed-weights"));
}

TEST(ObjectReferences, ARunNeedsItsLargeTensorsAlone) {
  proto::RunRecord run;
  run.mutable_start()->add_inputs()->set_blob("input");
  run.mutable_start()->add_inputs()->set_inlined("bytes");
  auto& step = *run.add_steps();
  step.add_outputs()->set_inlined("bytes");
  step.add_outputs()->set_blob("of a step");
  run.add_outputs()->set_blob("output");
  run.add_outputs();
  Digests digests;
  AddObjectsOf(run, digests);
  EXPECT_THAT(digests, ElementsAre("input", "of a step", "output"));
  digests.clear();
  AddObjectsOf(run.start(), digests);
  EXPECT_THAT(digests, ElementsAre("input"));
}

}  // namespace
}  // namespace troupe::cluster::object_references_test
