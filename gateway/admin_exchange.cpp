#include "gateway/admin_exchange.hpp"

#include <google/protobuf/util/json_util.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <map>
#include <vector>

#include "absl/strings/str_join.h"
#include "base/digest.hpp"
#include "base/status.hpp"
#include "gateway/http_error.hpp"
#include "gateway/http_exchanges.hpp"
#include "gateway/json_text.hpp"
#include "gateway/sharing_query.hpp"
#include "gateway/text.hpp"
#include "gateway/upload_exchange.hpp"
#include "proto/gpu_sharing.hpp"
#include "proto/precision.hpp"
#include "proto/stage_wish.hpp"

namespace troupe::gateway {

namespace {

constexpr Bytes kMaxWorkflow = MiB(1);

using Query = std::map<std::string, std::string>;

// Empty when the query does not have it.
std::string ValueOf(const Query& query, const std::string& key) {
  const auto found = query.find(key);
  return found == query.end() ? std::string() : found->second;
}

absl::Status AppendJson(std::string& out, const google::protobuf::Message& message) {
  google::protobuf::util::JsonPrintOptions options;
  options.preserve_proto_field_names = true;
  options.always_print_primitive_fields = true;
  std::string text;
  const auto status = google::protobuf::util::MessageToJsonString(message, &text, options);
  if (!status.ok()) return absl::InternalError(Cat("an answer has no JSON form: ", status.ToString()));
  out += text;
  return absl::OkStatus();
}

template <typename T>
absl::Status AppendJson(std::string& out, const std::vector<T>& messages) {
  out += '[';
  for (std::size_t i = 0; i < messages.size(); ++i) {
    if (i > 0) out += ',';
    TROUPE_RETURN_IF_ERROR(AppendJson(out, messages[i]));
  }
  out += ']';
  return absl::OkStatus();
}

template <typename T>
absl::Status AppendJson(std::string& out, const Remarked<T>& remarked) {
  TROUPE_RETURN_IF_ERROR(AppendJson(out, remarked.answer));
  if (remarked.message.empty()) return absl::OkStatus();
  out.pop_back();  // the object's end
  out += ",\"message\":";
  AppendJsonText(out, remarked.message);
  out += '}';
  return absl::OkStatus();
}

// Hands the answer of the cluster to the client; the JSON is made on the connection's thread.
template <typename T>
AdminDone<T> Forward(HttpReply reply) {
  return [reply = std::make_shared<HttpReply>(std::move(reply))](absl::StatusOr<T> answer) {
    (*reply)([answer = std::move(answer)] {
      if (!answer.ok()) return ErrorResponse(answer.status());
      HttpResponse response;
      if (absl::Status status = AppendJson(response.body, *answer); !status.ok())
        return ErrorResponse(status);
      return response;
    });
  };
}

std::function<void(absl::Status)> ForwardDone(HttpReply reply) {
  return [reply = std::make_shared<HttpReply>(std::move(reply))](const absl::Status& status) {
    HttpResponse done;
    done.body = "{}";
    ReplyWith(*reply, status.ok() ? std::move(done) : ErrorResponse(status));
  };
}

absl::StatusOr<double> PositiveNumber(const std::string& key, const std::string& text, double most) {
  double number = 0;
  const auto [rest, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error == std::errc() && rest == text.data() + text.size() && number > 0 && number <= most)
    return number;
  return absl::InvalidArgumentError(Cat("query parameter '", key, "' must be a number above 0 and up to ",
                                        static_cast<std::int64_t>(most)));
}

// "past=present,keys_in=keys_out".
absl::StatusOr<std::vector<proto::StateTensor>> ReadState(std::string_view text) {
  std::vector<proto::StateTensor> state;
  while (!text.empty()) {
    const auto end = std::min(text.find(','), text.size());
    const auto pair = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    const auto at = pair.find('=');
    if (at == 0 || at == std::string_view::npos || at + 1 == pair.size()) {
      return absl::InvalidArgumentError(Cat("query parameter 'state' has '", std::string(pair),
                                            "'; it is a list of INPUT=OUTPUT, with commas between them"));
    }
    auto& tensor = state.emplace_back();
    tensor.set_input(std::string(pair.substr(0, at)));
    tensor.set_output(std::string(pair.substr(at + 1)));
  }
  return state;
}

absl::StatusOr<proto::Precision> ReadPrecision(std::string_view text) {
  if (const auto precision = proto::ParsePrecision(text)) return *precision;
  return absl::InvalidArgumentError(Cat("query parameter 'precision' is '", std::string(text),
                                        "'; it is one of ", NamesIn(proto::kPrecisions)));
}

absl::StatusOr<std::uint32_t> ReadPercent(const std::string& key, std::string_view text) {
  std::uint32_t percent = 0;
  const auto [rest, error] = std::from_chars(text.data(), text.data() + text.size(), percent);
  if (error == std::errc() && rest == text.data() + text.size() && percent >= 1 && percent <= 100)
    return percent;
  return absl::InvalidArgumentError(Cat("query parameter '", key, "' is '", std::string(text),
                                        "'; it is a whole number of percent from 1 to 100"));
}

absl::StatusOr<std::uint32_t> ReadReplicas(std::string_view text) {
  if (text.size() == 1 && text[0] >= '0' && text[0] <= '3') return static_cast<std::uint32_t>(text[0] - '0');
  return absl::InvalidArgumentError(
      Cat("query parameter 'state_replicas' is '", std::string(text.substr(0, 80)),
          "'; it is a number from 0 to 3, of nodes that have copies of the function's state"));
}

absl::StatusOr<Bytes> ReadStageMemory(std::string_view text) {
  if (const auto bytes = ParseQuantity(text, proto::kStageMemory)) return Bytes(*bytes);
  return absl::InvalidArgumentError(Cat("query parameter 'stage_memory' is '",
                                        std::string(text.substr(0, 80)), "'; it is ",
                                        ExpectedOf(proto::kStageMemory)));
}

absl::StatusOr<Deployment> ReadDeployment(const std::string& name, const Query& query) {
  Deployment deployment;
  deployment.name = name;
  for (const auto& [key, value] : query) {
    if (key == "version") {
      deployment.version = value;
    } else if (key == "digest") {
      if (!IsSha256Hex(value))
        return absl::InvalidArgumentError(Cat("query parameter 'digest' is '", value.substr(0, 80),
                                              "'; it is the SHA-256 of a file that was uploaded before"));
      deployment.digest = value;
    } else if (key == "tenant") {
      deployment.tenant = value;
    } else if (key == "isolation") {
      deployment.isolation = value;
    } else if (key == "precision") {
      TROUPE_ASSIGN_OR_RETURN(deployment.precision, ReadPrecision(value));
    } else if (key == "run_limit_ms") {
      TROUPE_ASSIGN_OR_RETURN(const double milliseconds, PositiveNumber(key, value, 3'600'000));
      deployment.run_limit = FromSeconds(milliseconds / 1e3);
    } else if (key == "deadline_ms") {
      TROUPE_ASSIGN_OR_RETURN(const double milliseconds, PositiveNumber(key, value, 86'400'000));
      deployment.deadline = FromSeconds(milliseconds / 1e3);
    } else if (key == "percentile") {
      TROUPE_ASSIGN_OR_RETURN(deployment.percentile, PositiveNumber(key, value, 100));
    } else if (key == "state") {
      TROUPE_ASSIGN_OR_RETURN(deployment.state, ReadState(value));
    } else if (key == "state_replicas") {
      TROUPE_ASSIGN_OR_RETURN(deployment.state_replicas, ReadReplicas(value));
    } else if (key == "stage_memory") {
      TROUPE_ASSIGN_OR_RETURN(deployment.stage_memory, ReadStageMemory(value));
    } else {
      TROUPE_ASSIGN_OR_RETURN(const bool is_setting, ReadSetting(key, value, deployment.sharing));
      if (!is_setting)
        return absl::InvalidArgumentError(
            Cat("unknown query parameter '", key,
                "'; there are version, digest, tenant, isolation, precision, ", proto::SharingFieldNames(),
                ", run_limit_ms, deadline_ms, percentile, state, state_replicas, "
                "stage_memory"));
    }
  }
  if (const auto fault = proto::FaultIn(deployment.sharing)) return absl::InvalidArgumentError(fault->why);
  if (deployment.state_replicas > 0 && deployment.state.empty())
    return absl::InvalidArgumentError(
        "query parameter 'state_replicas' is given, and the function keeps no state: name its 'state' too");
  return deployment;
}

// The file in the body goes to the cluster, unless its client goes before.
class DeployExchange final : public HttpExchange {
 public:
  DeployExchange(Deployment deployment, Bytes max_model, ClusterAdmin& admin)
      : deployment_(std::move(deployment)), max_model_(max_model), admin_(admin) {}
  [[nodiscard]] Bytes body_limit() const override { return max_model_; }
  absl::StatusOr<std::span<std::byte>> NextSpan(std::uint64_t remaining) override {
    return body_.Next(remaining);
  }
  void Finish(HttpReply reply) override {
    deployment_.onnx = body_.Take();
    if (deployment_.onnx.empty() == deployment_.digest.empty()) {
      return ReplyWith(reply,
                       ErrorResponse(400, deployment_.digest.empty()
                                              ? "the body must be a model's file, and it is empty"
                                              : "the query names an uploaded file by its digest; leave "
                                                "the body empty"));
    }
    give_up_ =
        admin_.Deploy(std::move(deployment_), Forward<Remarked<proto::FunctionStatus>>(std::move(reply)));
  }
  // The server no longer counts the body's bytes, so the body must not be kept.
  void Abandon() override { give_up_(); }

 private:
  Deployment deployment_;
  Bytes max_model_;
  ClusterAdmin& admin_;
  TextBody body_;
  AdminGiveUp give_up_ = [] {};
};

std::shared_ptr<HttpExchange> WithoutBody(TextExchange::Answer answer) {
  return std::make_shared<TextExchange>(kMaxControlBody, std::move(answer));
}

std::shared_ptr<HttpExchange> FunctionExchange(const Route& route, std::string_view method,
                                               const proto::Caller& caller, const Query& query,
                                               Bytes max_model, ClusterAdmin& admin) {
  if (method == "POST") {
    auto deployment = ReadDeployment(route.name, query);
    if (!deployment.ok()) return Ready(ErrorResponse(deployment.status()));
    deployment->client = ClientOf(caller);
    deployment->caller = caller;
    return std::make_shared<DeployExchange>(*std::move(deployment), max_model, admin);
  }
  if (method == "DELETE") {
    return WithoutBody([&admin, caller, name = route.name, version = ValueOf(query, "version")](
                           const std::string&, HttpReply reply) {
      admin.Remove(caller, name, version, ForwardDone(std::move(reply)));
    });
  }
  return WithoutBody([&admin, name = route.name](const std::string&, HttpReply reply) {
    admin.ShowFunction(name, Forward<std::vector<proto::FunctionStatus>>(std::move(reply)));
  });
}

absl::StatusOr<proto::SplitFunction> ReadSplit(const Route& route, const Query& query) {
  proto::SplitFunction wish;
  wish.set_name(route.name);
  if (route.endpoint == Endpoint::kRollBack) {
    wish.set_roll_back(true);
  } else if (route.endpoint == Endpoint::kPromote) {
    wish.set_promote(ValueOf(query, "version"));
  } else {
    if (ValueOf(query, "version").empty())
      return absl::InvalidArgumentError(
          "query parameter 'version' is missing: the version that is the canary");
    wish.mutable_canary()->set_version(ValueOf(query, "version"));
    TROUPE_ASSIGN_OR_RETURN(const auto percent, ReadPercent("weight", ValueOf(query, "weight")));
    wish.mutable_canary()->set_percent(percent);
  }
  return wish;
}

std::shared_ptr<HttpExchange> SplitExchange(const Route& route, const proto::Caller& caller,
                                            const Query& query, ClusterAdmin& admin) {
  auto wish = ReadSplit(route, query);
  if (!wish.ok()) return Ready(ErrorResponse(wish.status()));
  return WithoutBody([&admin, caller, wish = *std::move(wish)](const std::string&, HttpReply reply) {
    admin.Split(caller, wish, Forward<std::vector<proto::FunctionStatus>>(std::move(reply)));
  });
}

std::shared_ptr<HttpExchange> UpdateExchange(const Route& route, const proto::Caller& caller,
                                             const Query& query, ClusterAdmin& admin) {
  auto wish = ReadUpdate(route.name, query);
  if (!wish.ok()) return Ready(ErrorResponse(wish.status()));
  return WithoutBody([&admin, caller, wish = *std::move(wish)](const std::string&, HttpReply reply) {
    admin.Update(caller, wish, Forward<std::vector<proto::FunctionStatus>>(std::move(reply)));
  });
}

std::shared_ptr<HttpExchange> WorkflowsExchange(std::string_view method, const proto::Caller& caller,
                                                ClusterAdmin& admin) {
  if (method == "POST") {
    return std::make_shared<TextExchange>(kMaxWorkflow, [&admin, caller](std::string body, HttpReply reply) {
      admin.SubmitWorkflow(caller, std::move(body),
                           Forward<Remarked<proto::WorkflowRecord>>(std::move(reply)));
    });
  }
  return WithoutBody([&admin](const std::string&, HttpReply reply) {
    admin.ListWorkflows(Forward<std::vector<proto::WorkflowRecord>>(std::move(reply)));
  });
}

std::shared_ptr<HttpExchange> RunsExchange(const Query& query, ClusterAdmin& admin) {
  return WithoutBody([&admin, workflow = ValueOf(query, "workflow")](const std::string&, HttpReply reply) {
    admin.ListRuns(workflow, Forward<std::vector<proto::RunRecord>>(std::move(reply)));
  });
}

std::shared_ptr<HttpExchange> RunExchange(const std::string& run, std::string_view method,
                                          const proto::Caller& caller, ClusterAdmin& admin) {
  if (method == "DELETE") {
    return WithoutBody([&admin, caller, run](const std::string&, HttpReply reply) {
      admin.CancelRun(caller, run, ForwardDone(std::move(reply)));
    });
  }
  return WithoutBody([&admin, run](const std::string&, HttpReply reply) {
    admin.ShowRun(run, Forward<proto::RunRecord>(std::move(reply)));
  });
}

// The parameters that an endpoint takes in its query. Deployments and updates have many (ReadDeployment, ReadUpdate).
std::vector<std::string> ParametersOf(Endpoint endpoint, std::string_view method) {
  if (endpoint == Endpoint::kFunction && method == "DELETE") return {"version"};
  if (endpoint == Endpoint::kPromote) return {"version"};
  if (endpoint == Endpoint::kCanary) return {"version", "weight"};
  if (endpoint == Endpoint::kRuns) return {"workflow"};
  return {};
}

std::string TakenHere(const std::vector<std::string>& parameters) {
  if (parameters.empty()) return "none is taken here";
  if (parameters.size() == 1) return Cat("the one that is taken here is '", parameters[0], "'");
  return Cat("those that are taken here are '", absl::StrJoin(parameters, "', '"), "'");
}

absl::Status CheckParameters(const Query& query, Endpoint endpoint, std::string_view method) {
  if (endpoint == Endpoint::kFunction && method == "POST") return absl::OkStatus();
  if (endpoint == Endpoint::kSharing) return absl::OkStatus();
  const auto taken = ParametersOf(endpoint, method);
  for (const auto& [key, value] : query)
    if (std::find(taken.begin(), taken.end(), key) == taken.end())
      return absl::InvalidArgumentError(Cat("unknown query parameter '", key, "'; ", TakenHere(taken)));
  return absl::OkStatus();
}

}  // namespace

std::shared_ptr<HttpExchange> MakeAdminExchange(const Route& route, const HttpRequestHead& head,
                                                const proto::Caller& caller, Bytes max_model,
                                                ClusterAdmin& admin) {
  const auto method = head.method;
  const auto query = ParseQuery(route.query);
  if (!query.ok()) return Ready(ErrorResponse(query.status()));
  if (const auto known = CheckParameters(*query, route.endpoint, method); !known.ok())
    return Ready(ErrorResponse(known));
  switch (route.endpoint) {
    case Endpoint::kFunctions:
      return WithoutBody([&admin](const std::string&, HttpReply reply) {
        admin.ListFunctions(Forward<std::vector<proto::FunctionStatus>>(std::move(reply)));
      });
    case Endpoint::kFunction:
      return FunctionExchange(route, method, caller, *query, max_model, admin);
    case Endpoint::kCanary:
    case Endpoint::kPromote:
    case Endpoint::kRollBack:
      return SplitExchange(route, caller, *query, admin);
    case Endpoint::kSharing:
      return UpdateExchange(route, caller, *query, admin);
    case Endpoint::kWorkflows:
      return WorkflowsExchange(method, caller, admin);
    case Endpoint::kWorkflow:
      return WithoutBody([&admin, caller, name = route.name](const std::string&, HttpReply reply) {
        admin.RemoveWorkflow(caller, name, ForwardDone(std::move(reply)));
      });
    case Endpoint::kRuns:
      return RunsExchange(*query, admin);
    case Endpoint::kRun:
      return RunExchange(route.name, method, caller, admin);
    case Endpoint::kUpload:
      return MakeUploadExchange(route.name, head, caller, admin);
    case Endpoint::kImports:
    case Endpoint::kImport:
      return WithoutBody([&admin, digest = route.name](const std::string&, HttpReply reply) {
        admin.ShowImports(digest, Forward<std::vector<proto::ImportStatus>>(std::move(reply)));
      });
    default:
      return WithoutBody([&admin](const std::string&, HttpReply reply) {
        admin.Status(Forward<proto::ClusterStatusReply>(std::move(reply)));
      });
  }
}

}  // namespace troupe::gateway
