// A cluster of canned answers, and a program that talks to it.
#pragma once

#include <deque>
#include <map>
#include <string>
#include <vector>

#include "shell/program.hpp"
#include "tests/unit/shell/fake_console.hpp"

namespace troupe::shell {

// The requests to the cluster and its answers. It outlives the clients made from it.
struct FakeCluster {
  using Case = proto::AdminRequest::RequestCase;

  // Answers by kind of request: each is used once, the last one again and again. Without one the reply is
  // empty.
  void Answer(Case kind, absl::StatusOr<proto::AdminReply> reply) {
    answers[kind].push_back(std::move(reply));
  }

  std::map<Case, std::deque<absl::StatusOr<proto::AdminReply>>> answers;
  absl::StatusOr<proto::InferReply> infer_reply = proto::InferReply();
  absl::Status upload_status;
  std::vector<proto::AdminRequest> asked;
  std::vector<Duration> timeouts;
  std::vector<proto::InferRequest> inferred;
  std::string uploaded;
  int clients = 0;
  std::string manager;
};

// `troupe` with a fake console and a fake cluster.
struct Harness {
  Harness();
  // Runs the words of a line, which is split as the shell does it.
  ExitCode Run(const std::string& line);
  [[nodiscard]] std::string out() const { return last_out; }
  [[nodiscard]] std::string err() const { return last_err; }

  FakeCluster cluster;
  FakeConsole console;
  Session session;
  std::string manager_variable;
  std::string last_out;
  std::string last_err;
};

// A function as the registry shows it.
proto::FunctionStatus MakeFunction(const std::string& name, const std::string& version);
// Two nodes (one of them with two GPUs) and a gateway.
proto::AdminReply MakeStatusReply();
proto::AdminReply MakeGpuReply();

}  // namespace troupe::shell
