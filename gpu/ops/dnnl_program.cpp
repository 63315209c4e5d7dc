#include "gpu/ops/dnnl_program.hpp"
#include "gpu/ops/layout.hpp"

#include <cstring>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "gpu/ops/bfloat_rows.hpp"

namespace troupe::gpu {
namespace {

class NoopKernel final : public Kernel {
 public:
  absl::Status Run(std::span<const TensorView>, std::span<TensorView>, std::byte*) const override {
    return absl::OkStatus();
  }
};

std::string At(const std::vector<std::string>& list, std::size_t i) {
  return i < list.size() ? list[i] : std::string();
}

void Put(std::vector<std::string>& list, std::size_t i, std::string value) {
  if (list.size() <= i) list.resize(i + 1);
  list[i] = std::move(value);
}

// Setting the address of a memory object writes zeros to its padding, each time. Memory that is only read is
// therefore described as plain bytes; the primitive uses its own descriptor.
dnnl::memory::desc FlatDesc(const dnnl::memory::desc& desc) {
  const auto bytes = static_cast<dnnl::memory::dim>(desc.get_size());
  return {{bytes}, dnnl::memory::data_type::u8, dnnl::memory::format_tag::a};
}

}  // namespace

const dnnl::engine& CpuEngine() {
  static const dnnl::engine engine(dnnl::engine::kind::cpu, 0);
  return engine;
}

dnnl::primitive_attr UserScratchpad(dnnl::post_ops post_ops) {
  dnnl::primitive_attr attributes;
  attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  attributes.set_post_ops(post_ops);
  return attributes;
}

bool IsReference(const dnnl::primitive_desc_base& descriptor) {
  return absl::StartsWith(descriptor.impl_info_str(), "ref");
}

PackedWeight PackAs(const dnnl::memory::desc& wanted, const dnnl::memory::desc& plain,
                    const std::byte* constant) {
  PackedWeight packed;
  packed.layout = LayoutOf(wanted);
  if (packed.layout.empty()) return packed;
  packed.data.resize(wanted.get_size());
  dnnl::memory from(plain, CpuEngine(), const_cast<std::byte*>(constant));  // dense: nothing is written
  dnnl::memory to(wanted, CpuEngine(), packed.data.data());
  dnnl::stream stream(CpuEngine());
  dnnl::reorder(from, to).execute(stream, from, to);
  stream.wait();
  return packed;
}

absl::Status AppendActivation(const StepContext& ctx, dnnl::post_ops& ops) {
  const std::string& name = ctx.step.activation();
  const float alpha = ctx.step.activation_alpha();
  const float beta = ctx.step.activation_beta();
  if (name.empty()) return absl::OkStatus();
  if (name == "Relu") {
    ops.append_eltwise(1, dnnl::algorithm::eltwise_relu, 0, 0);
  } else if (name == "LeakyRelu") {
    ops.append_eltwise(1, dnnl::algorithm::eltwise_relu, alpha, 0);
  } else if (name == "Clip") {
    ops.append_eltwise(1, dnnl::algorithm::eltwise_clip, alpha, beta);
  } else if (name == "Sigmoid") {
    ops.append_eltwise(1, dnnl::algorithm::eltwise_logistic, 0, 0);
  } else if (name == "Tanh") {
    ops.append_eltwise(1, dnnl::algorithm::eltwise_tanh, 0, 0);
  } else if (name == "HardSwish") {
    ops.append_eltwise(1, dnnl::algorithm::eltwise_hardswish, 0, 0);
  } else if (name == "com.microsoft.QuickGelu") {
    ops.append_eltwise(1, dnnl::algorithm::eltwise_swish, alpha, 0);
  } else {
    return ctx.Error(absl::StrCat("unknown fused activation '", name, "'"));
  }
  return absl::OkStatus();
}

std::unique_ptr<Kernel> EmptyKernel() {
  return std::make_unique<NoopKernel>();
}

void AddActivation(DnnlProgram& program, const dnnl::memory::desc& desc, const dnnl::post_ops& activation) {
  float scale, alpha, beta;
  dnnl::algorithm algorithm;
  activation.get_params_eltwise(0, scale, algorithm, alpha, beta);
  const dnnl::eltwise_forward::desc eltwise(dnnl::prop_kind::forward_inference, algorithm, desc, alpha, beta);
  const dnnl::eltwise_forward::primitive_desc made(eltwise, UserScratchpad(), CpuEngine());
  const DnnlProgram::Argument arguments[] = {{DNNL_ARG_SRC, desc, DnnlProgram::Output(0), true},
                                             {DNNL_ARG_DST, desc, DnnlProgram::Output(0), true}};
  program.Add(dnnl::eltwise_forward(made), made, arguments);
}

DnnlProgram::Operand DnnlProgram::Scratch(std::size_t bytes) {
  const std::size_t offset = scratch_bytes_;
  scratch_bytes_ = AlignUp(Bytes(offset + bytes), Bytes(64)).count();
  return {Place::kScratch, offset};
}

void DnnlProgram::Add(const dnnl::primitive& primitive, const dnnl::primitive_desc_base& descriptor,
                      std::span<const Argument> arguments) {
  Call call;
  call.primitive = primitive;
  const auto add = [&call](const Argument& argument) {
    call.operands.push_back(argument.operand);
    call.descs.push_back(argument.written ? argument.desc : FlatDesc(argument.desc));
    call.ids.push_back(argument.id);
  };
  for (const Argument& argument : arguments) add(argument);
  const dnnl::memory::desc scratchpad = descriptor.query_md(dnnl::query::scratchpad_md);
  if (scratchpad.get_size() > 0) {
    add({DNNL_ARG_SCRATCHPAD, scratchpad, Scratch(scratchpad.get_size()), true});
  }
  calls_.push_back(std::move(call));
}

DnnlProgram::Operand DnnlProgram::Converted(Operand from, const dnnl::memory::desc& from_desc,
                                            const dnnl::memory::desc& to_desc) {
  if (IsBf16(from_desc) == IsBf16(to_desc)) return from;
  Call call;
  call.bfloats = static_cast<std::int64_t>(to_desc.get_size() / sizeof(std::uint16_t));
  call.operands = {from, Scratch(to_desc.get_size())};
  calls_.push_back(std::move(call));
  return calls_.back().operands.back();
}

void DnnlProgram::ReorderTo(Operand from, const dnnl::memory::desc& from_desc, Operand to,
                            const dnnl::memory::desc& to_desc) {
  const dnnl::reorder::primitive_desc descriptor(CpuEngine(), from_desc, CpuEngine(), to_desc,
                                                 UserScratchpad());
  const auto plain = InType(RowMajorDesc(from_desc.dims()), from_desc.data_type());
  // From blocks to other blocks oneDNN has plain loops; by way of row-major it is 17 to 60 times faster.
  if (descriptor.impl_info_str() == std::string_view("simple:any") && IsExpressible(from_desc) &&
      from_desc != plain && to_desc != plain) {
    const Operand between = Reorder(from, from_desc, plain);
    return ReorderTo(between, plain, to, to_desc);
  }
  const Argument arguments[] = {{DNNL_ARG_FROM, from_desc, from, false}, {DNNL_ARG_TO, to_desc, to, true}};
  Add(dnnl::reorder(descriptor), descriptor, arguments);
}

DnnlProgram::Operand DnnlProgram::Reorder(Operand from, const dnnl::memory::desc& from_desc,
                                          const dnnl::memory::desc& to_desc) {
  if (from_desc == to_desc) return from;
  const Operand to = Scratch(to_desc.get_size());
  ReorderTo(from, from_desc, to, to_desc);
  return to;
}

void DnnlProgram::StartFrom(int input, std::size_t bytes) {
  in_place_ = input;
  start_bytes_ = bytes;
}

void DnnlProgram::SetInputLayout(std::size_t i, std::string layout) {
  Put(input_layouts_, i, std::move(layout));
}
void DnnlProgram::SetOutputLayout(std::size_t i, std::string layout) {
  Put(output_layouts_, i, std::move(layout));
}
std::string DnnlProgram::input_layout(std::size_t i) const {
  return At(input_layouts_, i);
}
std::string DnnlProgram::output_layout(std::size_t i) const {
  return At(output_layouts_, i);
}

std::unique_ptr<DnnlProgram::Frame> DnnlProgram::MakeFrame() const {
  auto frame = std::make_unique<Frame>(Frame{dnnl::stream(CpuEngine()), {}});
  for (const Call& call : calls_) {
    Frame::Bound& bound = frame->calls.emplace_back();
    bound.addresses.resize(call.operands.size());
    if (call.bfloats > 0) continue;
    for (std::size_t i = 0; i < call.operands.size(); ++i) {
      bound.memories.push_back(dnnl::memory(call.descs[i], CpuEngine(), DNNL_MEMORY_NONE));
      bound.arguments.push_back({call.ids[i], bound.memories.back().get()});
    }
  }
  return frame;
}

absl::Status DnnlProgram::Execute(const Call& call, Frame::Bound& bound, const dnnl::stream& stream,
                                  std::span<std::byte* const> addresses) {
  if (call.bfloats > 0) {
    ToBfloats(reinterpret_cast<const float*>(addresses[0]), reinterpret_cast<std::uint16_t*>(addresses[1]),
              call.bfloats);
    return absl::OkStatus();
  }
  for (std::size_t i = 0; i < addresses.size(); ++i)
    if (dnnl_memory_set_data_handle_v2(bound.memories[i].get(), addresses[i], stream.get()) != dnnl_success)
      return absl::InternalError("oneDNN refused the address of a tensor");
  const auto count = static_cast<int>(bound.arguments.size());
  const dnnl_status_t status =
      dnnl_primitive_execute(call.primitive.get(), stream.get(), count, bound.arguments.data());
  if (status == dnnl_success) return absl::OkStatus();
  return absl::InternalError(
      absl::StrCat("a oneDNN primitive failed with status ", static_cast<int>(status)));
}

absl::Status DnnlProgram::Run(std::span<const TensorView> in, std::span<TensorView> out,
                              std::byte* scratch) const {
  if (start_bytes_ > 0 && in[static_cast<std::size_t>(in_place_)].data != out[0].data) {
    std::memcpy(out[0].data, in[static_cast<std::size_t>(in_place_)].data, start_bytes_);
  }
  const auto frame = frames_.Take([this] { return MakeFrame(); });
  for (std::size_t c = 0; c < calls_.size(); ++c) {
    Frame::Bound& bound = frame->calls[c];
    for (std::size_t i = 0; i < calls_[c].operands.size(); ++i) {
      const Operand operand = calls_[c].operands[i];
      bound.addresses[i] = operand.place == Place::kInput    ? in[operand.index].data
                           : operand.place == Place::kOutput ? out[operand.index].data
                                                             : scratch + operand.index;
    }
    TROUPE_RETURN_IF_ERROR(Execute(calls_[c], bound, frame->stream, bound.addresses));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<Kernel>> MakeReorder(const Shape& shape, const std::string& from,
                                                    const std::string& to) {
  TROUPE_ASSIGN_OR_RETURN(const dnnl::memory::desc from_desc, DescOf(from, shape));
  TROUPE_ASSIGN_OR_RETURN(const dnnl::memory::desc to_desc, DescOf(to, shape));
  proto::Step step;
  step.set_op("Reorder");
  return GuardDnnl(StepContext{step}, [&]() -> absl::StatusOr<std::unique_ptr<Kernel>> {
    auto program = std::make_unique<DnnlProgram>();
    program->ReorderTo(DnnlProgram::Input(0), from_desc, DnnlProgram::Output(0), to_desc);
    program->SetInputLayout(0, from);
    program->SetOutputLayout(0, to);
    return program;
  });
}

}  // namespace troupe::gpu
