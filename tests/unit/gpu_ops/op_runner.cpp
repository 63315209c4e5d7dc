#include "tests/unit/gpu_ops/op_runner.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <new>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/check.hpp"
#include "base/status.hpp"
#include "gpu/ops/layout.hpp"
#include "gpu/ops/step_kernel.hpp"
#include "gpu/ops/texts.hpp"

namespace troupe::gpu {
namespace {

constexpr std::size_t kGuardBytes = 64;

struct AlignedDelete {
  void operator()(std::byte* p) const { ::operator delete[](p, std::align_val_t{64}); }
};
using Memory = std::unique_ptr<std::byte[], AlignedDelete>;

Memory Allocate(std::size_t bytes) {
  Memory memory(new (std::align_val_t{64}) std::byte[bytes + kGuardBytes]);
  std::fill_n(memory.get(), bytes + kGuardBytes, std::byte{0xa5});
  return memory;
}

proto::Attribute& Add(proto::Step& step, const std::string& name) {
  proto::Attribute& attribute = *step.add_attributes();
  attribute.set_name(name);
  return attribute;
}

TestTensor Packed(const TensorView& view) {
  std::vector<std::string> texts;
  std::int64_t count = 1;
  for (std::int64_t dim : view.shape) count *= dim;
  for (std::int64_t i = 0; i < count; ++i) texts.emplace_back(TextAt(view, i));
  return Texts(view.shape, texts);
}

}  // namespace

TestTensor Counting(const Shape& shape) {
  std::int64_t count = 1;
  for (std::int64_t dim : shape) count *= dim;
  std::vector<float> values;
  for (std::int64_t i = 1; i <= count; ++i) values.push_back(static_cast<float>(i));
  return Floats(shape, values);
}

proto::Step MakeStep(const std::string& op, int outputs) {
  proto::Step step;
  step.set_op(op);
  step.set_name("test");
  for (int i = 0; i < outputs; ++i) step.add_outputs(absl::StrCat("y", i));
  return step;
}

void SetInt(proto::Step& step, const std::string& name, std::int64_t value) {
  Add(step, name).set_i(value);
}
void SetInts(proto::Step& step, const std::string& name, const std::vector<std::int64_t>& values) {
  Add(step, name).mutable_ints()->mutable_values()->Assign(values.begin(), values.end());
}
void SetFloat(proto::Step& step, const std::string& name, float value) {
  Add(step, name).set_f(value);
}
void SetText(proto::Step& step, const std::string& name, const std::string& value) {
  Add(step, name).set_s(value);
}
void SetFloats(proto::Step& step, const std::string& name, const std::vector<float>& values) {
  Add(step, name).mutable_floats()->mutable_values()->Assign(values.begin(), values.end());
}
void SetTexts(proto::Step& step, const std::string& name, const std::vector<std::string>& values) {
  auto& texts = *Add(step, name).mutable_strings();
  for (const std::string& value : values) texts.add_values(value);
}

absl::StatusOr<std::vector<TestTensor>> RunOp(const proto::Step& step, const std::vector<TestTensor>& in,
                                              int opset) {
  const Operator* entry = FindOperator(step.op(), opset);
  if (entry == nullptr) return absl::UnimplementedError(absl::StrCat("no operator ", step.op()));
  const StepContext ctx{step, opset};
  std::vector<ValueInfo> infos(in.size());
  std::vector<TensorView> views(in.size());
  std::vector<Memory> memories;
  for (std::size_t i = 0; i < in.size(); ++i) {
    infos[i].type = in[i].type;
    infos[i].shape = in[i].shape;
    memories.push_back(Allocate(in[i].data.size()));
    std::copy(in[i].data.begin(), in[i].data.end(), memories.back().get());
    if (in[i].type == proto::BYTES) {
      const std::span<const std::byte> packed(memories.back().get(), in[i].data.size());
      infos[i].texts = {packed.size(), packed.size()};
      memories.push_back(Allocate(static_cast<std::size_t>(infos[i].elements()) * sizeof(Text)));
      TROUPE_RETURN_IF_ERROR(
          PointAtTexts(packed, infos[i].elements(), reinterpret_cast<Text*>(memories.back().get())));
    }
    if (in[i].known) infos[i].constant = memories.back().get();
    if (in[i].type != proto::DATA_TYPE_UNSPECIFIED)
      views[i] = {in[i].type, in[i].shape, memories.back().get()};
  }
  TROUPE_ASSIGN_OR_RETURN(const std::vector<ValueInfo> out, InferStep(*entry, ctx, infos));
  std::int64_t total = 0;
  for (const ValueInfo& info : out) {
    TROUPE_ASSIGN_OR_RETURN(const std::int64_t count, CountElements(info.shape));
    total += count;
  }
  if (total > (1 << 24)) return absl::ResourceExhaustedError("too large for a test");
  TROUPE_ASSIGN_OR_RETURN(const std::unique_ptr<Kernel> kernel, MakeStepKernel(*entry, ctx, infos, out));
  std::vector<TensorView> results;
  std::vector<std::size_t> sizes;
  for (const ValueInfo& info : out) {
    TROUPE_ASSIGN_OR_RETURN(const Bytes size, ValueBytes(info));
    sizes.push_back(size.count());
    memories.push_back(Allocate(sizes.back()));
    results.push_back({info.type, info.shape, memories.back().get()});
  }
  if (kernel->scratch().count() > (1 << 28)) return absl::ResourceExhaustedError("too large for a test");
  const Memory scratch = Allocate(kernel->scratch().count());
  TROUPE_RETURN_IF_ERROR(kernel->Run(views, results, scratch.get()));
  std::vector<TestTensor> answer;
  for (std::size_t i = 0; i < results.size(); ++i) {
    const std::byte* end = results[i].data + sizes[i];
    TROUPE_CHECK(std::all_of(end, end + kGuardBytes, [](std::byte b) { return b == std::byte{0xa5}; }),
                 "a kernel wrote beyond its output");
    if (results[i].type == proto::BYTES) {
      answer.push_back(Packed(results[i]));
      continue;
    }
    std::size_t bytes = ElementSize(results[i].type);
    for (std::int64_t dim : results[i].shape) bytes *= static_cast<std::size_t>(dim);
    TROUPE_CHECK(bytes <= sizes[i], "an output became larger than planned");
    answer.push_back({results[i].type, results[i].shape, {results[i].data, results[i].data + bytes}, false});
  }
  return answer;
}

void ExpectError(const proto::Step& step, const std::vector<TestTensor>& in, const std::string& part,
                 int opset) {
  const auto out = RunOp(step, in, opset);
  ASSERT_FALSE(out.ok()) << step.op() << " accepted the input";
  EXPECT_EQ(out.status().code(), absl::StatusCode::kInvalidArgument) << out.status();
  EXPECT_TRUE(absl::StrContains(out.status().message(), part)) << out.status();
  EXPECT_TRUE(absl::StrContains(out.status().message(), step.op())) << out.status();
}

}  // namespace troupe::gpu
