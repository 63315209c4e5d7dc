#include "gateway/infer_request.hpp"

#include <algorithm>
#include <cstring>
#include <limits>
#include <optional>

#include "base/status.hpp"
#include "gateway/infer_parameters.hpp"
#include "gateway/json_cursor.hpp"
#include "gateway/sequence.hpp"
#include "gateway/tensor_json.hpp"
#include "gateway/tensor_type.hpp"
#include "gateway/text.hpp"

namespace troupe::gateway {

namespace {

std::string Names(const std::vector<proto::TensorSpec>& specs) {
  return Join(specs, ", ", [](const auto& spec) { return std::string_view(spec.name()); });
}

const proto::TensorSpec* FindSpec(const std::vector<proto::TensorSpec>& specs, std::string_view name) {
  const auto found =
      std::find_if(specs.begin(), specs.end(), [&](const auto& spec) { return spec.name() == name; });
  return found == specs.end() ? nullptr : &*found;
}

// One element of "inputs" while it is read.
struct InputDraft {
  proto::TensorSpec spec;
  bool has_name = false;
  bool has_shape = false;
  bool has_type = false;
  std::optional<std::size_t> data_at;  // offset of the value of "data"
  InputParameters parameters;
  bool filled = false;
  InputBuffer buffer;
  Seen seen;
};

class InferReader {
 public:
  InferReader(std::string_view json, const FunctionInfo& function, InferenceService& service,
              std::uint64_t raw_bytes, const SharedClient* client)
      : cursor_(json, /*allow_non_finite=*/true),
        function_(function),
        service_(service),
        client_(client),
        raw_left_(raw_bytes) {}

  absl::StatusOr<ParsedInfer> Run() {
    if (const absl::Status status = Request(); !status.ok()) return Located(status);
    if (!cursor_.Finish()) return cursor_.status();
    if (raw_left_ > 0) {
      return absl::InvalidArgumentError(Cat(
          raw_left_, " bytes of the body belong to no input: the sum of all \"binary_data_size\" must be ",
          "what follows the JSON (header Inference-Header-Content-Length)"));
    }
    TROUPE_RETURN_IF_ERROR(CheckInputs());
    TROUPE_RETURN_IF_ERROR(CheckOutputs());
    return std::move(parsed_);
  }

 private:
  absl::Status Error(std::string_view what) { return cursor_.Fail(what), cursor_.status(); }

  // The byte alone tells little: an error of the JSON names the member that it is in.
  [[nodiscard]] absl::Status Located(const absl::Status& status) const {
    if (cursor_.ok() || status != cursor_.status() || at_.member.empty()) return status;
    return absl::InvalidArgumentError(Cat(at_.Text(), ": ", Message(status)));
  }

  absl::Status Request() {
    bool has_inputs = false;
    Seen seen;
    if (!cursor_.BeginObject()) return cursor_.status();
    for (std::string_view key; at_ = {}, cursor_.NextMember(key);) {
      at_.member = Known(kRequestMembers, key);
      TROUPE_RETURN_IF_ERROR(Once(cursor_, seen, "a request", key, kRequestMembers));
      if (key != "inputs" && cursor_.SkipNull()) continue;  // as if it were absent
      if (key == "inputs") {
        has_inputs = true;
        TROUPE_RETURN_IF_ERROR(Inputs());
      } else if (key == "outputs") {
        TROUPE_RETURN_IF_ERROR(Outputs());
      } else if (key == "parameters") {
        TROUPE_RETURN_IF_ERROR(Parameters());
      } else if (key == "id") {
        std::string_view id;
        if (!cursor_.ReadString(id)) return cursor_.status();
        parsed_.call.request_id = id;
      } else {
        cursor_.Skip();
      }
    }
    if (!cursor_.ok()) return cursor_.status();
    return has_inputs ? absl::OkStatus()
                      : absl::InvalidArgumentError("\"inputs\" is missing from the request");
  }

  absl::Status Parameters() {
    Seen seen;
    if (!cursor_.BeginObject()) return cursor_.status();
    for (std::string_view key; cursor_.NextMember(key);) {
      TROUPE_RETURN_IF_ERROR(Once(cursor_, seen, "\"parameters\"", key, kParameters));
      std::uint64_t number = 0;
      at_.inner = Known(kParameters, key);
      if (cursor_.SkipNull()) continue;
      if (key == "timeout") {
        if (cursor_.ReadUint(number)) parsed_.call.timeout = Microseconds(number);
      } else if (key == "priority") {
        if (!cursor_.ReadUint(number)) break;
        if (number > std::numeric_limits<std::uint32_t>::max())
          return Error("priority is at most 4294967295");
        parsed_.call.priority = static_cast<std::uint32_t>(number);
      } else if (key == "binary_data_output") {
        cursor_.ReadBool(parsed_.binary_default);
      } else if (key.starts_with("sequence_")) {
        TROUPE_RETURN_IF_ERROR(ReadSequenceParameter(cursor_, key, parsed_.call.sequence));
      } else {
        cursor_.Skip();
      }
    }
    return cursor_.status();
  }

  static Duration Microseconds(std::uint64_t count) {
    constexpr auto kMost = std::chrono::duration_cast<std::chrono::microseconds>(Duration::max()).count();
    return std::chrono::microseconds(std::min(count, static_cast<std::uint64_t>(kMost)));
  }

  absl::Status Inputs() {
    if (!cursor_.BeginArray()) return cursor_.status();
    for (at_.in_list = true; cursor_.NextElement(); at_.inner = {}, ++at_.index)
      TROUPE_RETURN_IF_ERROR(Input());
    return cursor_.status();
  }

  absl::Status Input() {
    InputDraft draft;
    if (!cursor_.BeginObject()) return cursor_.status();
    for (std::string_view key; cursor_.NextMember(key);) TROUPE_RETURN_IF_ERROR(InputMember(draft, key));
    if (!cursor_.ok()) return cursor_.status();
    at_.inner = {};
    if (!draft.has_name || !draft.has_shape || !draft.has_type) {
      return Error(
          "an input needs \"name\", \"shape\" and \"datatype\"; the input that ends here lacks some");
    }
    const bool raw = draft.parameters.binary_size.has_value();
    const bool shared = draft.parameters.shared.any();
    if (draft.data_at.has_value() + raw + shared > 1) {
      return absl::InvalidArgumentError(Cat("input '", draft.spec.name(), "' has both ",
                                            draft.data_at ? "\"data\"" : "\"binary_data_size\"", " and ",
                                            shared ? "a place in shared memory" : "\"binary_data_size\""));
    }
    if (!draft.filled) TROUPE_RETURN_IF_ERROR(Fill(draft));
    parsed_.call.inputs.push_back({std::move(draft.spec), std::move(draft.buffer)});
    return absl::OkStatus();
  }

  absl::Status InputMember(InputDraft& draft, std::string_view key) {
    at_.inner = Known(kInputMembers, key);
    TROUPE_RETURN_IF_ERROR(Once(cursor_, draft.seen, "an input", key, kInputMembers));
    if ((key == "parameters" || key == "data") && cursor_.SkipNull()) return cursor_.status();
    std::string_view text;
    if (key == "name") {
      if (cursor_.ReadString(text)) draft.spec.set_name(text.data(), text.size());
      draft.has_name = true;
    } else if (key == "datatype") {
      if (!cursor_.ReadString(text)) return cursor_.status();
      const auto type = TypeFromName(text);
      if (!type) return Error(Cat("'", text.substr(0, 40), "' is not a datatype; there are ", TypeNames()));
      draft.spec.set_type(*type);
      draft.has_type = true;
    } else if (key == "shape") {
      draft.has_shape = true;
      return Shape(draft.spec);
    } else if (key == "parameters") {
      return ReadInputParameters(cursor_, draft.parameters);
    } else if (key == "data") {
      draft.data_at = cursor_.offset();
      // Mostly the description comes first, and the data is read where it stands; else it is visited again.
      if (draft.has_name && draft.has_shape && draft.has_type && !draft.parameters.binary_size &&
          !draft.parameters.shared.any())
        return Fill(draft);
      cursor_.Skip();
    } else {
      cursor_.Skip();
    }
    return cursor_.status();
  }

  absl::Status Shape(proto::TensorSpec& spec) {
    if (!cursor_.BeginArray()) return cursor_.status();
    while (cursor_.NextElement()) {
      std::uint64_t dimension = 0;
      if (cursor_.IsNegative())
        return Error(
            "a dimension is negative: -1 may stand in a function's shape, and a request says the sizes that "
            "its data has");
      if (!cursor_.ReadUint(dimension)) break;
      if (dimension > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max())) {
        return Error("a dimension is larger than any tensor");
      }
      spec.add_shape(static_cast<std::int64_t>(dimension));
    }
    return cursor_.status();
  }

  // Checks the description, reserves the place, and writes the data if it is JSON.
  absl::Status Fill(InputDraft& draft) {
    draft.filled = true;
    const proto::TensorSpec* declared = FindSpec(function_.inputs, draft.spec.name());
    if (declared == nullptr) {
      return absl::InvalidArgumentError(Cat("function '", function_.name, "' has no input '",
                                            draft.spec.name(), "'; its inputs: ", Names(function_.inputs)));
    }
    for (const InferInput& other : parsed_.call.inputs) {
      if (other.spec.name() == draft.spec.name()) {
        return absl::InvalidArgumentError(Cat("input '", draft.spec.name(), "' is given twice"));
      }
    }
    TROUPE_RETURN_IF_ERROR(CheckAgainstDeclared(*declared, draft.spec));
    if (draft.parameters.binary_size) return FillRaw(draft);
    if (draft.parameters.shared.any()) return FillShared(draft);
    if (!draft.data_at) {
      return absl::InvalidArgumentError(
          Cat("input '", draft.spec.name(), "' has neither \"data\" nor \"binary_data_size\""));
    }
    const std::size_t here = cursor_.offset();
    cursor_.Seek(*draft.data_at);
    TROUPE_ASSIGN_OR_RETURN(const Bytes size, MeasureJsonTensor(cursor_, draft.spec));
    TROUPE_ASSIGN_OR_RETURN(draft.buffer, ReserveExactly(service_, size));
    TROUPE_RETURN_IF_ERROR(ReadJsonTensor(cursor_, draft.spec, draft.buffer.bytes()));
    if (here > *draft.data_at) cursor_.Seek(here);
    return absl::OkStatus();
  }

  absl::Status FillRaw(InputDraft& draft) {
    const std::uint64_t size = *draft.parameters.binary_size;
    TROUPE_RETURN_IF_ERROR(CheckSize(draft.spec, "binary_data_size", size));
    if (size > raw_left_) {
      return absl::InvalidArgumentError(
          Cat("input '", draft.spec.name(), "': \"binary_data_size\" is ", size, ", but only ", raw_left_,
              " bytes are left behind the JSON (the header Inference-Header-Content-Length tells where it "
              "ends)"));
    }
    raw_left_ -= size;
    TROUPE_ASSIGN_OR_RETURN(draft.buffer, ReserveExactly(service_, Bytes(size)));
    if (size > 0) parsed_.raw_inputs.push_back({parsed_.call.inputs.size(), draft.buffer.bytes()});
    return absl::OkStatus();
  }

  absl::Status FillShared(InputDraft& draft) {
    const auto tensor = Cat("input '", draft.spec.name(), "'");
    TROUPE_ASSIGN_OR_RETURN(SharedRange range, FindRange(client_, draft.parameters.shared, tensor));
    TROUPE_RETURN_IF_ERROR(CheckSize(draft.spec, kSharedSize, range.size().count()));
    TROUPE_ASSIGN_OR_RETURN(draft.buffer, ReserveCharged(*client_, service_, range.size()));
    if (range.size() > Bytes(0))
      parsed_.shared_inputs.push_back({parsed_.call.inputs.size(), std::move(range)});
    return absl::OkStatus();
  }

  // Only the bytes themselves tell how long a tensor of BYTES is.
  static absl::Status CheckSize(const proto::TensorSpec& spec, std::string_view member, std::uint64_t size) {
    if (spec.type() == proto::BYTES) return absl::OkStatus();
    TROUPE_ASSIGN_OR_RETURN(const Bytes expected, TensorSize(spec));
    if (expected.count() == size) return absl::OkStatus();
    return absl::InvalidArgumentError(Cat("input '", spec.name(), "': \"", member, "\" is ", size, ", but ",
                                          TypeName(spec.type()), " ", ShapeText(spec), " has ",
                                          expected.count(), " bytes"));
  }

  absl::Status Outputs() {
    if (!cursor_.BeginArray()) return cursor_.status();
    for (at_.in_list = true; cursor_.NextElement(); at_.inner = {}, ++at_.index)
      TROUPE_RETURN_IF_ERROR(Output());
    return cursor_.status();
  }

  absl::Status Output() {
    OutputWish wish;
    OutputParameters parameters;
    Seen seen;
    if (!cursor_.BeginObject()) return cursor_.status();
    for (std::string_view key; cursor_.NextMember(key);) {
      at_.inner = Known(kOutputMembers, key);
      TROUPE_RETURN_IF_ERROR(Once(cursor_, seen, "an output", key, kOutputMembers));
      std::string_view text;
      if (key == "parameters" && cursor_.SkipNull()) continue;
      if (key == "name") {
        if (cursor_.ReadString(text)) wish.name = text;
      } else if (key == "parameters") {
        TROUPE_RETURN_IF_ERROR(ReadOutputParameters(cursor_, parameters));
      } else {
        cursor_.Skip();
      }
    }
    if (!cursor_.ok()) return cursor_.status();
    at_.inner = {};
    if (wish.name.empty()) return Error("an output needs a \"name\"");
    if (parameters.shared.any()) TROUPE_RETURN_IF_ERROR(OutputRange(parameters, wish));
    explicit_binary_.push_back(parameters.binary);
    parsed_.outputs.push_back(std::move(wish));
    return absl::OkStatus();
  }

  absl::Status OutputRange(const OutputParameters& parameters, OutputWish& wish) {
    const auto tensor = Cat("output '", wish.name, "'");
    TROUPE_ASSIGN_OR_RETURN(wish.shared, FindRange(client_, parameters.shared, tensor));
    if (parameters.binary.value_or(false))
      return absl::InvalidArgumentError(
          Cat(tensor, " has both \"binary_data\" and a place in shared memory"));
    if (wish.shared.writable()) return absl::OkStatus();
    return absl::PermissionDeniedError(
        Cat(tensor, ": the gateway's user may only read the shared memory object of the region '",
            wish.shared.name(), "'; give it the mode for that and register the region again"));
  }

  absl::Status CheckInputs() {
    for (const proto::TensorSpec& declared : function_.inputs) {
      const bool given =
          std::any_of(parsed_.call.inputs.begin(), parsed_.call.inputs.end(),
                      [&](const InferInput& input) { return input.spec.name() == declared.name(); });
      if (given) continue;
      return absl::InvalidArgumentError(Cat("input '", declared.name(), "' is missing: function '",
                                            function_.name, "' takes ", TypeName(declared.type()), " ",
                                            ShapeText(declared)));
    }
    return absl::OkStatus();
  }

  absl::Status CheckOutputs() {
    for (std::size_t i = 0; i < parsed_.outputs.size(); ++i) {
      OutputWish& wish = parsed_.outputs[i];
      wish.binary = explicit_binary_[i].value_or(parsed_.binary_default);
      const proto::TensorSpec* declared = FindSpec(function_.outputs, wish.name);
      if (declared == nullptr) {
        return absl::InvalidArgumentError(Cat("function '", function_.name, "' has no output '", wish.name,
                                              "'; its outputs: ", Names(function_.outputs)));
      }
      if (std::count(parsed_.call.outputs.begin(), parsed_.call.outputs.end(), wish.name) > 0) {
        return absl::InvalidArgumentError(Cat("output '", wish.name, "' is asked for twice"));
      }
      TROUPE_RETURN_IF_ERROR(CheckForm(*declared, wish.binary || wish.shared.valid()));
      parsed_.call.outputs.push_back(wish.name);
    }
    if (!parsed_.outputs.empty()) return absl::OkStatus();
    for (const proto::TensorSpec& output : function_.outputs) {
      TROUPE_RETURN_IF_ERROR(CheckForm(output, parsed_.binary_default));
    }
    return absl::OkStatus();
  }

  static absl::Status CheckForm(const proto::TensorSpec& output, bool binary) {
    if (binary || HasJsonForm(output.type())) return absl::OkStatus();
    return absl::InvalidArgumentError(Cat("output '", output.name(), "' is ", TypeName(output.type()),
                                          ", which has no JSON form; ask for it with \"binary_data\": true"));
  }

  JsonCursor cursor_;
  const FunctionInfo& function_;
  InferenceService& service_;
  const SharedClient* const client_;  // null: none
  std::uint64_t raw_left_;
  At at_;
  std::vector<std::optional<bool>> explicit_binary_;
  ParsedInfer parsed_;
};

}  // namespace

absl::StatusOr<ParsedInfer> ParseInferRequest(std::string_view json, const FunctionInfo& function,
                                              InferenceService& service, std::uint64_t raw_bytes,
                                              const SharedClient* client) {
  return InferReader(json, function, service, raw_bytes, client).Run();
}

}  // namespace troupe::gateway
