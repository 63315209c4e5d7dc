// apply, diff, export: what files may say, what a plan makes of it, and what is sent.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <functional>

#include "base/digest.hpp"
#include "shell/declarative/plan.hpp"
#include "shell/text/cat.hpp"
#include "tests/temporary_directory.hpp"
#include "tests/unit/shell/fake_admin_client.hpp"

namespace troupe::shell {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using DeclarativeCase = proto::AdminRequest;

// A cluster that keeps what it is told, for functions alone; it knows workflows by the text of their names.
struct Declarative : testing::Test {
  Declarative() {
    for (const char* model : {"a", "b", "c"}) Write(Cat(model, ".onnx"), Cat("model ", model));
    Write("empty.onnx", "");
  }

  void Write(const std::string& file, const std::string& content) {
    std::ofstream(Cat(folder, "/", file), std::ios::binary) << content;
  }
  static std::string Digest(const std::string& model) { return Sha256Hex(Cat("model ", model)); }

  // The cluster has this version.
  proto::FunctionRecord& Has(const std::string& name, const std::string& version, const std::string& model) {
    auto& record = *functions.add_functions()->mutable_record();
    record = MakeFunction(name, version).record();
    record.set_onnx_digest(Digest(model));
    return record;
  }
  void HasWorkflow(const proto::WorkflowSpec& spec) {
    auto& known = *workflows.add_workflows()->mutable_spec();
    known = spec;
    if (known.version().empty()) known.set_version("1");
  }

  // What is wrong with a file of this text, or "fine".
  std::string WrongIn(const std::string& yaml) {
    Write("it.yaml", yaml);
    return Wrong("it.yaml");
  }
  std::string Wrong(const std::string& file, const std::string& command = "diff") {
    Answer();
    const auto code = troupe.Run(Cat(command, " -f ", folder, "/", file));
    EXPECT_THAT(Changes(), IsEmpty());
    if (code != ExitCode::kUsage) return "fine";
    auto text = troupe.err();
    for (auto at = text.find(folder); at != std::string::npos; at = text.find(folder))
      text.erase(at, folder.size() + (text.size() > at + folder.size() && text[at + folder.size()] == '/'));
    const auto begin = text.find("-f ");
    return text.substr(text.find(": ", begin) + 2);
  }
  void Answer() {
    troupe.cluster.answers.clear();
    troupe.cluster.asked.clear();
    troupe.cluster.Answer(DeclarativeCase::kListFunctions, functions);
    troupe.cluster.Answer(DeclarativeCase::kListWorkflows, workflows);
    for (const auto& spec : read) {
      proto::AdminReply reply;
      *reply.add_workflows()->mutable_spec() = spec;
      troupe.cluster.Answer(DeclarativeCase::kReadWorkflow, reply);
    }
    for (const auto& [kind, reply] : answers) troupe.cluster.Answer(kind, reply);
  }
  // apply of a file with this text; what it sent that changes the cluster.
  std::vector<std::string> Apply(const std::string& yaml, const std::string& options = "",
                                 ExitCode code = ExitCode::kOk) {
    Write("it.yaml", yaml);
    Answer();
    EXPECT_EQ(troupe.Run(Cat("apply -f ", folder, "/it.yaml ", options)), code) << troupe.err();
    return Changes();
  }
  [[nodiscard]] std::vector<std::string> Changes() const {
    std::vector<std::string> changes;
    for (const auto& request : troupe.cluster.asked) {
      if (request.has_deploy())
        changes.push_back(Cat("deploy ", request.deploy().name(), " ", request.deploy().version()));
      if (request.has_remove())
        changes.push_back(
            Cat("remove ", request.remove().key().name(), " ", request.remove().key().version()));
      if (request.has_update_function())
        changes.push_back(Cat("update ", request.update_function().key().name(), " ",
                              request.update_function().key().version()));
      if (request.has_submit_workflow()) changes.push_back("submit");
      if (request.has_remove_workflow())
        changes.push_back(Cat("remove workflow ", request.remove_workflow().name()));
      if (!request.has_split_function()) continue;
      std::string shares;
      for (const auto& share : request.split_function().shares().shares())
        Append(&shares, " ", share.version(), ":", share.percent());
      changes.push_back(Cat("share", shares));
    }
    return changes;
  }
  [[nodiscard]] const proto::DeployRequest& LastDeployment() const {
    const proto::DeployRequest* last = &proto::DeployRequest::default_instance();
    for (const auto& request : troupe.cluster.asked)
      if (request.has_deploy()) last = &request.deploy();
    return *last;
  }

  const test::TemporaryDirectory place;
  const std::string folder = place.path();
  Harness troupe;
  proto::AdminReply functions;
  proto::AdminReply workflows;
  std::vector<proto::WorkflowSpec> read;  // what the manager makes of the files' workflows, in order
  std::vector<std::pair<DeclarativeCase::RequestCase, absl::StatusOr<proto::AdminReply>>> answers;
};

constexpr char kDigits[] = "kind: function\nname: digits\nmodel: a.onnx\ndeadline: 50ms\npercentile: 98\n";

// --- what files may say ---

TEST_F(Declarative, EachMistakeIsToldWithItsLine) {
  const std::pair<const char*, const char*> rows[] = {
      {"kind: function\nname: f\nmodle: a.onnx\n",
       "it.yaml:3: a function has no 'modle'; did you mean 'model'?"},
      {"kind: function\nname: f\nmodel: a.onnx\nqqqqqqqqqq: 1\n",
       "it.yaml:4: a function has no 'qqqqqqqqqq'; it has kind,"},
      {"kind: functoin\nname: f\n",
       "it.yaml:1: 'kind' of a document is 'functoin'; 'function' or 'workflow' is expected; did you mean 'function'?"},
      {"name: f\n", "it.yaml:1: a document lacks 'kind': write 'kind: function' or 'kind: workflow'"},
      {"kind: function\nmodel: a.onnx\n", "it.yaml:1: a document lacks 'name'"},
      {"kind: function\nname: f\n", "it.yaml:1: a function needs 'model'"},
      {"kind: function\nname: f\nmodel: a.onnx\nstage_memory: 0\n", "it.yaml:4: 'stage_memory'"},
      {"kind: function\nname: f\nmodel: none.onnx\n", "it.yaml:3: 'none.onnx' cannot be read"},
      {"kind: function\nname: f\nmodel: empty.onnx\n", "it.yaml:3: 'empty.onnx' is empty"},
      {"kind: function\nname: f\nmodel: sha256:12\n", "it.yaml:3: 'model' of a function is 'sha256:12'"},
      {"kind: function\nname: f\nmodel: [a.onnx]\n",
       "it.yaml:3: 'model' of a function is a list; a single value is expected"},
      {"kind: function\nname: f\nmodel:\n", "it.yaml:3: 'model' of a function is empty"},
      {"kind: function\nname: f\nmodel: a.onnx\ndeadline: 50\n",
       "it.yaml:4: 'deadline' of a function is '50'; a time like"},
      {"kind: function\nname: f\nmodel: a.onnx\ndeadline: [1]\n",
       "it.yaml:4: 'deadline' of a function is a list"},
      {"kind: function\nname: f\nmodel: a.onnx\npercentile: 0.98\n",
       "it.yaml:4: 'percentile' of a function is '0.98'"},
      {"kind: function\nname: f\nmodel: a.onnx\nprecision: fp8\n",
       "it.yaml:4: 'precision' of a function is 'fp8'; it is one of"},
      {"kind: function\nname: f\nmodel: a.onnx\nisolation: all\n",
       "it.yaml:4: 'isolation' of a function is 'all'; it is one of"},
      {"kind: function\nname: f\nmodel: a.onnx\nsm_partition: 0%\n",
       "it.yaml:4: 'sm_partition' of a function is '0%'"},
      {"kind: function\nname: f\nmodel: a.onnx\nquota_limt: 80%\n",
       "it.yaml:4: a function has no 'quota_limt'; did you mean 'quota_limit'?"},
      {"kind: function\nname: f\nmodel: a.onnx\nquota_limit: 101%\n",
       "it.yaml:4: 'quota_limit' of a function is '101%'; a whole number of percent from 1 to 100, or 'none' is "
       "expected"},
      {"kind: function\nname: f\nmodel: a.onnx\ngpu_mem: 2Gi\n",
       "it.yaml:4: 'gpu_mem' of a function is '2Gi'; a size like 2GiB, or 'none', or 'auto' is expected"},
      {"kind: function\nname: f\nmodel: a.onnx\nmax_batch: [1]\n",
       "it.yaml:4: 'max_batch' of a function is a list"},
      {"kind: function\nname: f\nmodel: a.onnx\nquota_limit: 30%\nquota_request: 31%\n",
       "it.yaml:5: quota_request is 31 % and quota_limit 30 %"},
      {"kind: function\nname: f\nsm_partition: 50%\nversions:\n  1: {model: a.onnx, max_instances: 3}\n",
       "it.yaml:5: max_instances is 3, and so many runs of an sm_partition of 50 % take 150 %"},
      {"kind: function\nname: f\nmodel: a.onnx\nrun_limit: 2h\n",
       "it.yaml:4: 'run_limit' of a function is '2h'"},
      {"kind: function\nname: f\nmodel: a.onnx\nstate: past\n",
       "it.yaml:4: 'state' of a function is 'past'; a mapping"},
      {"kind: function\nname: f\nmodel: a.onnx\nstate_replicas: 1\n",
       "it.yaml:4: 'state_replicas' of a function is '1'; the function keeps no state"},
      {"kind: function\nname: f\nmodel: a.onnx\nstate: {a: b}\nstate_replicas: 4\n",
       "it.yaml:5: 'state_replicas' of a function is '4'; a number from 0 to 3"},
      {"kind: function\nname: f\nmodel: a.onnx\nmodel: b.onnx\n",
       "it.yaml:4: 'model' stands twice in a document"},
      {"kind: function\nname: f\nmodel: a.onnx\nversions: {1: 100}\n",
       "it.yaml:3: 'model' stands beside 'versions'"},
      {"kind: function\nname: f\nversions: {1: 90, 2: 20}\n",
       "it.yaml:3: the weights of the versions are 110% together"},
      {"kind: function\nname: f\nversions: {}\n",
       "it.yaml:3: 'versions' of a function is a mapping; at least one"},
      {"kind: function\nname: f\nversions:\n  one: 100\n", "it.yaml:4: 'one' is not a valid version"},
      {"kind: function\nname: f\nversions:\n  1: most\n", "it.yaml:4: the weight of a version is 'most'"},
      {"kind: function\nname: f\nversions:\n  1: {weight: 100}\n", "it.yaml:4: a version needs 'model'"},
      {"kind: function\nname: f\nversions:\n  1: {modell: a.onnx}\n",
       "it.yaml:4: a version has no 'modell'; did you mean 'model'?"},
      {"kind: function\nname: f\nversions:\n  1: 100\n",
       "it.yaml:4: the cluster has no version 1 of function 'f'"},
      {"- a\n- b\n", "it.yaml:1: a document is a list, and a mapping is expected"},
      {"kind: [\n", "it.yaml:2: this is not valid"},
      {"kind: function\nname: f\nmodel: a.onnx\n---\nkind: function\nname: g\nmodel: a.onnx\nname: h\n",
       "it.yaml:8: 'name' stands twice"},
      {"kind: function\nname: f\nmodel: a.onnx\n---\n# two\nkind: function\nname: f\nmodel: b.onnx\n",
       "it.yaml:6: 'f' stands there twice; the first is at it.yaml:1"},
      {"kind: function\nname: f\nmodel: a.onnx\n---\nkind: workflow\nname: f\n",
       "it.yaml:5: 'f' stands there twice; the first is at it.yaml:1"},
      {"kind: function\nname: &n f\nmodel: a.onnx\n",
       "it.yaml:2: this is not valid: anchors ('&name') are not taken"},
      {"kind: function\nname: !!str f\nmodel: a.onnx\n", "it.yaml:2: this is not valid: tags"},
      {"# nothing\n", "'it.yaml' has no document"},
      {"", "'it.yaml' has no document"},
  };
  for (const auto& [yaml, expected] : rows) EXPECT_THAT(WrongIn(yaml), HasSubstr(expected)) << yaml;
}

TEST_F(Declarative, WhatIsTooLargeIsRefusedBeforeItIsRead) {
  EXPECT_THAT(WrongIn(std::string(10 << 20, '#')),
              HasSubstr("'it.yaml' has 10 MiB; at most 4 MiB are taken"));
  std::string bomb = "a: &a [x, x, x, x, x, x, x, x, x]\n";
  for (char one = 'b'; one <= 'i'; ++one)
    Append(&bomb, std::string(1, one), ": &", std::string(1, one), " [*", std::string(1, one - 1), ", *",
           std::string(1, one - 1), ", *", std::string(1, one - 1), "]\n");
  EXPECT_THAT(WrongIn(bomb), HasSubstr("it.yaml:1: this is not valid: anchors"));
  EXPECT_THAT(WrongIn(Cat("kind: ", std::string(100, '['), "\n")), HasSubstr("nested more than 32 deep"));
  std::string wide = "kind: function\nname: f\nstate: {";
  for (int i = 0; i < 60'000; ++i) Append(&wide, "k", i, ": v, ");
  EXPECT_THAT(WrongIn(wide + "}\n"), HasSubstr("a document has at most 100000 values"));
  std::string many;
  for (int i = 0; i < 1001; ++i) Append(&many, "---\nkind: function\nname: f", i, "\nmodel: a.onnx\n");
  EXPECT_THAT(WrongIn(many), HasSubstr("there are more than 1000 documents"));
  EXPECT_THAT(WrongIn("kind: \xff\xfe\n"), HasSubstr("'it.yaml' is not valid UTF-8 text"));
}

TEST_F(Declarative, ADirectoryIsReadInTheOrderOfItsNames) {
  std::filesystem::create_directories(folder + "/all/deeper");
  Write("all/20-b.yml", "kind: function\nname: b\nmodel: ../b.onnx\n");
  Write("all/10-a.yaml",
        "kind: function\nname: a\nmodel: ../a.onnx\n---\nkind: function\nname: c\nmodel: ../c.onnx\n");
  Write("all/readme.txt", "not YAML: [");
  Write("all/deeper/x.yaml", "not YAML: [");
  Answer();
  EXPECT_EQ(troupe.Run(Cat("apply -f ", folder, "/all")), ExitCode::kOk) << troupe.err();
  EXPECT_THAT(Changes(), ElementsAre("deploy a 1", "deploy c 1", "deploy b 1"));
  // A link that leads to itself is an error of that file, and ends.
  std::filesystem::create_symlink("loop.yaml", folder + "/all/loop.yaml");
  EXPECT_THAT(Wrong("all"), HasSubstr("'all/loop.yaml' cannot be read: Too many levels of symbolic links"));
  std::filesystem::remove(folder + "/all/loop.yaml");
  // One that leads to its own directory is not followed.
  std::filesystem::create_directory_symlink(".", folder + "/all/self");
  EXPECT_EQ(Wrong("all"), "fine");
  std::filesystem::create_directories(folder + "/none");
  EXPECT_THAT(Wrong("none"), HasSubstr("'none' has no *.yaml and no *.yml"));
  EXPECT_THAT(Wrong("missing"), HasSubstr("'missing' cannot be read"));
}

TEST_F(Declarative, StandardInputIsReadToo) {
  Answer();
  for (const char* line : {"kind: function", "name: f", "model: missing.onnx"})
    troupe.console.input.emplace_back(line);
  EXPECT_EQ(troupe.Run("diff -f -"), ExitCode::kUsage);
  EXPECT_THAT(troupe.err(), HasSubstr("-:3: 'missing.onnx' cannot be read"));
}

// --- what a plan makes of it ---

TEST_F(Declarative, WhatIsThereAlreadyChangesNothing) {
  Has("digits", "1", "a");
  EXPECT_THAT(Apply(kDigits), IsEmpty());
  EXPECT_EQ(troupe.out(), "0 changes, 1 unchanged\n");
  EXPECT_EQ(troupe.cluster.uploaded, "");
  Answer();
  EXPECT_EQ(troupe.Run(Cat("diff -f ", folder, "/it.yaml")), ExitCode::kOk);
}

TEST_F(Declarative, AnObjectiveThatIsNotSaidStays) {
  Has("digits", "1", "a");
  EXPECT_THAT(Apply("kind: function\nname: digits\nmodel: a.onnx\n"), IsEmpty());
  EXPECT_THAT(Apply("kind: function\nname: digits\nmodel: b.onnx\n"), ElementsAre("deploy digits 2"));
  EXPECT_EQ(LastDeployment().slo().deadline_ns(), 50'000'000);
  EXPECT_EQ(LastDeployment().slo().percentile(), 98);
}

TEST_F(Declarative, ANewFunctionIsDeployedAsTheFileSays) {
  const std::string yaml =
      Cat(kDigits,
          "tenant: t\nisolation: tenant\nprecision: bf16\nsm_partition: 40 %\n"
          "quota_request: 30%\nquota_limit: 80%\ngpu_mem: 1.5 GB\nmax_instances: 2\nmax_batch: 8\n"
          "stage_memory: 8GiB\nrun_limit: 1500us\nstate: {past: present}\nstate_replicas: 2\n");
  EXPECT_THAT(Apply(Cat(yaml)), ElementsAre("deploy digits 1"));
  EXPECT_EQ(troupe.cluster.uploaded, "model a");
  const auto& deploy = LastDeployment();
  EXPECT_EQ(deploy.onnx_digest(), Digest("a"));
  EXPECT_EQ(deploy.slo().deadline_ns(), 50'000'000);
  EXPECT_EQ(deploy.tenant(), "t");
  EXPECT_EQ(deploy.isolation(), proto::ISOLATION_TENANT);
  EXPECT_EQ(deploy.precision(), proto::PRECISION_BF16);
  EXPECT_EQ(deploy.sharing().sm_partition(), 40U);
  EXPECT_EQ(deploy.sharing().quota_request(), 30U);
  EXPECT_EQ(deploy.sharing().quota_limit(), 80U);
  EXPECT_EQ(deploy.sharing().gpu_mem(), 1'500'000'000U);
  EXPECT_EQ(deploy.sharing().max_instances(), 2U);
  EXPECT_EQ(deploy.sharing().max_batch(), 8U);
  EXPECT_EQ(deploy.run_limit_ns(), 1'500'000);
  EXPECT_EQ(deploy.stage_memory(), GiB(8).count());
  EXPECT_EQ(deploy.state_replicas(), 2U);
  ASSERT_EQ(deploy.state().size(), 1);
  EXPECT_EQ(deploy.state(0).output(), "present");
  EXPECT_THAT(troupe.out(), HasSubstr("+ function digits version 1\n    model: sha256:"));
  EXPECT_THAT(troupe.out(), HasSubstr("    run_limit: 1500us\n"));
  EXPECT_THAT(troupe.out(), HasSubstr("function digits version 1 is created\n"));
}

// A model in three stages, and the workflow that calls them; beside it, a workflow that calls the model.
TEST_F(Declarative, AModelInStagesIsOneFunction) {
  for (std::uint32_t number = 1; number <= 3; ++number) {
    auto& record = Has(Cat("big.", number), "1", "a");
    record.mutable_slo()->set_deadline_ns(10'000'000);
    record.mutable_stage()->set_workflow("big");
    record.mutable_stage()->set_number(number);
    record.mutable_stage()->set_count(3);
    record.mutable_stage()->set_deadline_ns(50'000'000);
  }
  proto::WorkflowSpec big;
  big.set_name("big");
  big.set_stages(3);
  HasWorkflow(big);
  proto::WorkflowSpec flow;
  flow.set_name("flow");
  auto& step = *flow.add_steps();
  step.set_name("all");
  step.set_workflow("big");
  HasWorkflow(flow);
  step.clear_workflow();
  step.set_function("big");
  read = {flow};
  const std::string model = "kind: function\nname: big\nmodel: a.onnx\ndeadline: 50ms\npercentile: 98\n";
  const std::string both = Cat(model, "---\nkind: workflow\nname: flow\n");
  EXPECT_THAT(Apply(both), IsEmpty()) << troupe.out();
  EXPECT_EQ(troupe.out(), "0 changes, 2 unchanged\n");
  EXPECT_THAT(Apply(both, "--prune --yes"), IsEmpty());
  EXPECT_THAT(Apply(Cat(model, "stage_memory: 2GiB\n---\nkind: workflow\nname: flow\n")),
              ElementsAre("deploy big 2"));
  EXPECT_EQ(LastDeployment().stage_memory(), GiB(2).count());
  Answer();
  EXPECT_EQ(troupe.Run("export"), ExitCode::kOk);
  EXPECT_THAT(troupe.out(), HasSubstr("kind: function\nname: big\n"));
  EXPECT_THAT(troupe.out(), HasSubstr("function: big\n"));
  EXPECT_THAT(troupe.out(), Not(HasSubstr("big.1")));
  read.clear();
  EXPECT_THAT(Apply("kind: function\nname: other\nmodel: b.onnx\n", "--prune --yes"),
              ElementsAre("deploy other 1", "remove workflow flow", "remove big 1"));
}

TEST_F(Declarative, AChangeIsANewVersionAndIsShownFirst) {
  Has("digits", "1", "a").set_tenant("t");
  Write("it.yaml", "kind: function\nname: digits\nmodel: b.onnx\ndeadline: 40ms\n");
  Answer();
  EXPECT_EQ(troupe.Run(Cat("diff -f ", folder, "/it.yaml")), ExitCode::kRefused);
  EXPECT_THAT(troupe.out(), HasSubstr("~ function digits version 2\n    model: sha256:"));
  EXPECT_THAT(troupe.out(),
              HasSubstr("    deadline: 50ms -> 40ms\n    tenant: t -> -\n1 change, 0 unchanged\n"));
  EXPECT_THAT(Changes(), IsEmpty());
  Answer();
  EXPECT_EQ(troupe.Run(Cat("apply --dry-run -f ", folder, "/it.yaml")), ExitCode::kOk);
  EXPECT_THAT(Changes(), IsEmpty());
  EXPECT_EQ(troupe.Run(Cat("apply -f ", folder, "/it.yaml")), ExitCode::kOk);
  EXPECT_THAT(Changes(), ElementsAre("deploy digits 2"));
}

TEST_F(Declarative, AChangeOfTheSharingAloneIsAnUpdateAndNoNewVersion) {
  auto& record = Has("digits", "2", "a");
  record.mutable_sharing()->set_sm_partition(24);
  record.mutable_sharing()->set_max_instances(4);
  EXPECT_THAT(Apply(Cat(kDigits, "sm_partition: 24%\nmax_instances: 4\n")), IsEmpty());
  EXPECT_THAT(Apply(Cat(kDigits, "sm_partition: 24%\nquota_limit: 80%\ngpu_mem: 2GiB\n")),
              ElementsAre("update digits 2"));
  EXPECT_THAT(troupe.out(),
              HasSubstr("~ function digits version 2\n    quota_limit: - -> 80%\n    gpu_mem: - -> 2GiB\n"
                        "    max_instances: 4 -> -\n1 change, 0 unchanged\n"));
  EXPECT_THAT(troupe.out(), HasSubstr("function digits version 2 is changed\n"));
  const auto& update = troupe.cluster.asked.back().update_function();
  EXPECT_EQ(update.settings_size(), 8) << "what the file does not mention is taken back";
  EXPECT_EQ(update.sharing().quota_limit(), 80U);
  EXPECT_EQ(update.sharing().max_instances(), 0U);
  EXPECT_THAT(Apply(Cat(kDigits, "quota_limit: 80%\ntenant: t\n")), ElementsAre("deploy digits 3"))
      << "with another change it is a new version";
}

TEST_F(Declarative, ASettingThatIsLeftToTheProfilesIsTheSameWhateverTheySay) {
  auto& sharing = *Has("digits", "1", "a").mutable_sharing();
  sharing.add_automatic("sm_partition");
  sharing.set_sm_partition(40);
  EXPECT_THAT(Apply(Cat(kDigits, "sm_partition: auto\n")), IsEmpty());
  EXPECT_THAT(Apply(Cat(kDigits, "sm_partition: auto\nmax_batch: auto\n")), ElementsAre("update digits 1"));
  EXPECT_THAT(troupe.out(), HasSubstr("    max_batch: - -> auto\n"));
  EXPECT_THAT(troupe.cluster.asked.back().update_function().sharing().automatic(),
              ElementsAre("sm_partition", "max_batch"));
  EXPECT_THAT(Apply(Cat(kDigits, "sm_partition: 40%\n")), ElementsAre("update digits 1"));
  EXPECT_THAT(troupe.out(), HasSubstr("    sm_partition: auto -> 40%\n"));
  EXPECT_THAT(WrongIn(Cat(kDigits, "quota_limit: auto\n")),
              HasSubstr("a whole number of percent from 1 to 100, or 'none' is expected"));
  Answer();
  EXPECT_EQ(troupe.Run("export digits"), ExitCode::kOk);
  EXPECT_THAT(troupe.out(), HasSubstr("    sm_partition: auto\n"));
}

TEST_F(Declarative, ANamedVersionIsUpdatedTooAndSoIsOneBesideACanary) {
  Has("f", "1", "a").set_share_percent(90);
  Has("f", "2", "b").set_share_percent(10);
  EXPECT_THAT(
      Apply("kind: function\nname: f\nquota_limit: 80%\nversions:\n  1: {model: a.onnx, weight: 90%}\n"
            "  2: {model: b.onnx, weight: 10%, quota_limit: none}\n"),
      ElementsAre("update f 1"));
  EXPECT_THAT(Apply("kind: function\nname: f\nmodel: a.onnx\nquota_limit: 80%\n"), ElementsAre("update f 1"))
      << "version 1 answers";
}

TEST_F(Declarative, AModelThatTheClusterHasIsNotUploadedAgain) {
  Has("other", "1", "a");
  EXPECT_THAT(Apply(kDigits), ElementsAre("deploy digits 1"));
  EXPECT_EQ(troupe.cluster.uploaded, "");
  EXPECT_EQ(LastDeployment().onnx_digest(), Digest("a"));
  EXPECT_THAT(Apply(Cat("kind: function\nname: g\nmodel: sha256:", Digest("a"), "\n")),
              ElementsAre("deploy g 1"));
  EXPECT_THAT(WrongIn(Cat("kind: function\nname: g\nmodel: sha256:", Digest("z"), "\n")),
              HasSubstr("it.yaml:3: no function of the cluster has the model"));
}

TEST_F(Declarative, ANewVersionGetsNothingBeforeItsWeightIsTold) {
  Has("f", "1", "a");
  const char* const canary =
      "kind: function\nname: f\nversions:\n  1: 90%\n  2: {model: b.onnx, weight: 10%}\n";
  EXPECT_THAT(Apply(canary), ElementsAre("share 1:100", "deploy f 2", "share 1:90 2:10"));
  Has("f", "2", "b").set_share_percent(10);
  functions.mutable_functions(0)->mutable_record()->set_share_percent(90);
  EXPECT_THAT(Apply(canary), IsEmpty());
  EXPECT_THAT(Apply("kind: function\nname: f\nversions: {1: 0, 2: 100%}\n"), ElementsAre("share 2:100"));
  EXPECT_THAT(troupe.out(), HasSubstr("    1: 90%, 2: 10% -> 2: 100%\n"));
  EXPECT_THAT(WrongIn("kind: function\nname: f\nmodel: c.onnx\n"),
              HasSubstr("has a canary (1: 90%, 2: 10%)"));
  EXPECT_THAT(
      WrongIn("kind: function\nname: f\nversions:\n  2: {model: c.onnx, weight: 100}\n"),
      HasSubstr("it.yaml:4: version 2 of function 'f' is deployed, and a version does not change (model: "));
}

TEST_F(Declarative, OfANewFunctionTheStableVersionComesFirst) {
  EXPECT_THAT(Apply("kind: function\nname: f\nversions:\n  1: {model: a.onnx, weight: 20}\n"
                    "  2: {model: b.onnx, weight: 80}\n"),
              ElementsAre("deploy f 2", "share 2:100", "deploy f 1", "share 1:20 2:80"));
}

TEST_F(Declarative, AFunctionWhoseVersionsHaveSharesGetsItsNewVersionPromoted) {
  auto& first = Has("f", "1", "a");
  first.set_share_percent(100);
  first.set_role(proto::VERSION_STABLE);
  Has("f", "2", "b");
  EXPECT_THAT(Apply("kind: function\nname: f\nmodel: a.onnx\n"), IsEmpty()) << "version 1 answers";
  EXPECT_THAT(Apply("kind: function\nname: f\nmodel: c.onnx\n"), ElementsAre("deploy f 3", "share 3:100"));
}

proto::WorkflowSpec FlowSpec(const std::string& function, std::uint32_t line) {
  proto::WorkflowSpec spec;
  spec.set_name("flow");
  auto& step = *spec.add_steps();
  step.set_name("only");
  step.set_function(function);
  step.set_line(line);
  return spec;
}

TEST_F(Declarative, AWorkflowGoesToTheManagerWithItsLinesAndWithoutItsKind) {
  read = {FlowSpec("digits", 9)};
  const auto yaml =
      Cat(kDigits, "---\nkind: workflow\nname: flow\nsteps:\n  - {name: only, function: digits}\n");
  EXPECT_THAT(Apply(yaml), ElementsAre("deploy digits 1", "submit"));
  const auto& sent = troupe.cluster.asked.back().submit_workflow().yaml();
  EXPECT_EQ(sent, "\n\n\n\n\n\n#kind: workflow\nname: flow\nsteps:\n  - {name: only, function: digits}\n");
  Has("digits", "1", "a");
  HasWorkflow(FlowSpec("digits", 2));
  EXPECT_THAT(Apply(yaml), IsEmpty()) << "the layout of a file is not part of a workflow";
  read = {FlowSpec("digts", 9)};
  EXPECT_THAT(WrongIn(yaml),
              HasSubstr("it.yaml:9: step 'only' calls the function 'digts', which neither the cluster "
                        "nor these files have; did you mean 'digits'?"));
  read = {FlowSpec("digits", 9)};
  read[0].mutable_steps(0)->set_timeout_ns(5);
  EXPECT_THAT(Apply(yaml), ElementsAre("submit"));
  EXPECT_THAT(troupe.out(), HasSubstr("~ workflow flow\n"));
}

TEST_F(Declarative, AMistakeThatTheManagerFindsStopsEverything) {
  answers = {{DeclarativeCase::kReadWorkflow,
              absl::InvalidArgumentError("workflow 'flow' has 1 error:\nline 8: no")}};
  EXPECT_THAT(WrongIn(Cat(kDigits, "---\nkind: workflow\nname: flow\nstep: 1\n")),
              HasSubstr("it.yaml: workflow 'flow' has 1 error:\n"));
}

// --- what is sent ---

TEST_F(Declarative, AtTheFirstErrorItSaysWhatWasDoneAndWhatWasNot) {
  proto::AdminReply fine;
  answers = {{DeclarativeCase::kDeploy, fine},
             {DeclarativeCase::kDeploy, absl::InvalidArgumentError("an operator is not known")}};
  const std::string yaml =
      "kind: function\nname: a\nmodel: a.onnx\n---\nkind: function\nname: b\nmodel: b.onnx\n---\nkind: function\n"
      "name: c\nmodel: c.onnx\n";
  EXPECT_THAT(Apply(yaml, "", ExitCode::kRefused), ElementsAre("deploy a 1", "deploy b 1"));
  EXPECT_THAT(troupe.err(), HasSubstr("it.yaml:5: function b version 1: an operator is not known"));
  EXPECT_THAT(troupe.err(), HasSubstr("done: function a version 1\n"));
  EXPECT_THAT(troupe.err(), HasSubstr("not done: function b version 1, function c version 1\n"));
  EXPECT_THAT(troupe.out(), HasSubstr("function a version 1 is created\n"));
  EXPECT_THAT(troupe.out(), Not(HasSubstr("function b version 1 is created")));
  answers = {{DeclarativeCase::kDeploy, absl::InvalidArgumentError("an operator is not known")}};
  EXPECT_THAT(Apply(yaml, "", ExitCode::kUsage), ElementsAre("deploy a 1"));
  EXPECT_THAT(troupe.err(), HasSubstr("done: nothing\n"));
}

TEST_F(Declarative, PruningAsksAndRemovesWhatNoFileNames) {
  Has("digits", "1", "a");
  auto& old = Has("old", "1", "b");
  old.set_share_percent(100);
  Has("old", "2", "c");
  HasWorkflow(FlowSpec("old", 1));
  EXPECT_THAT(Apply(kDigits), IsEmpty()) << "without --prune nothing is removed";
  EXPECT_THAT(Apply(kDigits, "--prune", ExitCode::kRefused), IsEmpty());
  EXPECT_THAT(troupe.err(), HasSubstr("[y/N]"));
  EXPECT_THAT(troupe.out(), HasSubstr("- function old version 2\n"));
  EXPECT_THAT(Apply(kDigits, "--prune --yes"),
              ElementsAre("remove workflow flow", "share", "remove old 1", "remove old 2"));
}

TEST_F(Declarative, AnExportAsJsonIsRefused) {
  EXPECT_EQ(troupe.Run("--json export"), ExitCode::kUsage);
  EXPECT_THAT(troupe.out(), HasSubstr("an export is YAML"));
  EXPECT_THAT(troupe.out(), Not(HasSubstr("kind:")));
}

TEST_F(Declarative, AnExportIsWhatApplyFindsUnchanged) {
  auto& first = Has("f", "1", "a");
  first.set_share_percent(90);
  first.set_tenant("a \"b\"\n");
  first.set_isolation(proto::ISOLATION_FUNCTION);
  first.set_precision(proto::PRECISION_FP16);
  first.mutable_sharing()->set_sm_partition(12);
  first.mutable_sharing()->set_quota_request(30);
  first.mutable_sharing()->set_quota_limit(80);
  first.mutable_sharing()->set_gpu_mem(1'234'567'890'123);
  first.mutable_sharing()->set_max_instances(8);
  first.mutable_sharing()->set_max_batch(128);
  first.mutable_stage()->set_memory(GiB(3).count());
  first.set_run_limit_ns(1'234'567'890);
  first.mutable_slo()->set_percentile(99.9);
  first.add_state()->set_input("past");
  first.mutable_state(0)->set_output("present: #1");
  Has("f", "2", "b").set_share_percent(10);
  Has("g", "3", "c").mutable_slo()->set_deadline_ns(90'000'000'000);
  auto flow = FlowSpec("f", 0);
  flow.set_version("4");
  flow.mutable_steps(0)->set_timeout_ns(2'500'000'000);
  HasWorkflow(flow);
  read = {flow};
  Answer();
  EXPECT_EQ(troupe.Run("export"), ExitCode::kOk);
  const auto yaml = troupe.out();
  EXPECT_THAT(Apply(yaml), IsEmpty()) << yaml;
  EXPECT_EQ(troupe.out(), "0 changes, 3 unchanged\n");
  // So it is a comparison: what differs is seen.
  functions.mutable_functions(0)->mutable_record()->set_run_limit_ns(1'234'567'891);
  EXPECT_THAT(WrongIn(yaml), HasSubstr("(run_limit: 1234567891ns -> 1234567890ns)"));
  Answer();
  EXPECT_EQ(troupe.Run("export g"), ExitCode::kOk);
  EXPECT_EQ(troupe.out(), Cat("---\nkind: function\nname: g\nversions:\n  3:\n    model: sha256:",
                              Digest("c"), "\n    deadline: 90s\n    percentile: 98\n"));
  EXPECT_EQ(troupe.Run("export h"), ExitCode::kNotFound);
}

// Steps that call a workflow, have conditions, and something that stands in.
proto::WorkflowSpec RichSpec(std::uint32_t line) {
  proto::WorkflowSpec spec;
  spec.set_name("rich");
  auto& first = *spec.add_steps();
  first.set_name("each");
  first.set_workflow("inner");
  first.set_line(line);
  auto& input = *first.add_inputs();
  input.set_tensor("x");
  input.set_value("a");
  input.add_fallbacks("b.y");
  input.set_line(line);
  first.mutable_when()->set_value("go");
  first.mutable_when()->set_line(line);
  first.mutable_for_each()->set_input("x");
  first.mutable_for_each()->set_dimension(1);
  first.mutable_for_each()->set_most(9);
  first.mutable_for_each()->set_at_once(2);
  first.set_retries(0);
  first.set_durable(proto::DURABLE_BYTES);
  first.mutable_on_error()->set_step("other");
  first.mutable_on_error()->set_line(line);
  auto& other = *spec.add_steps();
  other.set_name("other");
  other.set_function("f");
  auto& value = *other.mutable_on_error()->add_values();
  value.set_tensor("y");
  value.set_value("a");
  value.set_line(line);
  return spec;
}

TEST_F(Declarative, AnExportedWorkflowHasAllThatItsStepsSay) {
  Has("f", "1", "a");
  auto stored = RichSpec(3);
  stored.set_version("1");
  stored.mutable_steps(0)->add_outputs()->set_name("y");  // what the manager keeps beside the file
  HasWorkflow(stored);
  HasWorkflow(FlowSpec("f", 1));
  workflows.mutable_workflows(1)->mutable_spec()->set_name("inner");
  Answer();
  EXPECT_EQ(troupe.Run("export rich"), ExitCode::kOk);
  const auto yaml = troupe.out();
  EXPECT_THAT(
      yaml,
      HasSubstr(
          "  - name: each\n    workflow: inner\n    inputs: {x: [a, b.y]}\n    when: go\n"
          "    for_each: {input: x, dimension: 1, most: 9, at_once: 2}\n    retries: 0\n    durable: bytes\n"
          "    on_error: {step: other}\n"
          "  - name: other\n    function: f\n    inputs: {}\n"
          "    on_error: {values: {y: a}}\n"));
  read = {RichSpec(12)};
  EXPECT_THAT(Apply(yaml), IsEmpty()) << "neither lines nor declared outputs are a change";
  read[0].mutable_steps(0)->set_retries(1);
  EXPECT_THAT(Apply(Cat("kind: workflow\n", "name: rich\n")), ElementsAre("submit"));
  read[0].mutable_steps(0)->set_workflow("iner");
  EXPECT_THAT(
      WrongIn("kind: workflow\nname: rich\n"),
      HasSubstr(
          "step 'each' calls the workflow 'iner', which neither the cluster nor these files have; did you "
          "mean 'inner'?"));
}

TEST_F(Declarative, WorkflowsThatOthersCallComeFirst) {
  Has("f", "1", "a");
  auto outer = FlowSpec("", 1);
  outer.mutable_steps(0)->set_workflow("inner");
  auto inner = FlowSpec("f", 1);
  inner.set_name("inner");
  read = {outer, inner};
  EXPECT_THAT(Apply("kind: workflow\nname: flow\nfirst: 1\n---\nkind: workflow\nname: inner\nsecond: 1\n"),
              ElementsAre("submit", "submit"));
  EXPECT_THAT(troupe.cluster.asked.back().submit_workflow().yaml(), HasSubstr("name: flow\n"));
}

TEST_F(Declarative, JsonHasThePlanAndWhatWasDone) {
  Has("digits", "1", "b");
  Apply(kDigits, "--json");
  EXPECT_THAT(
      troupe.out(),
      HasSubstr(R"({"changes":[{"sign":"~","what":"function digits version 2","details":["model: sha256:)"));
  EXPECT_THAT(troupe.out(), HasSubstr(R"("done":true}],"unchanged":[]})"));
}

TEST_F(Declarative, VersionsShareRequestsByCommands) {
  proto::AdminReply reply;
  *reply.add_functions() = MakeFunction("f", "1");
  reply.mutable_functions(0)->mutable_record()->set_share_percent(90);
  *reply.add_functions() = MakeFunction("f", "2");
  reply.mutable_functions(1)->mutable_record()->set_share_percent(10);
  troupe.cluster.Answer(DeclarativeCase::kSplitFunction, reply);
  EXPECT_EQ(troupe.Run("function canary f --version 2 --weight 10%"), ExitCode::kOk);
  EXPECT_EQ(troupe.cluster.asked.back().split_function().canary().percent(), 10U);
  EXPECT_EQ(troupe.out(), "f: version 1 gets 90 %, version 2 gets 10 %\n");
  EXPECT_EQ(troupe.Run("function promote f"), ExitCode::kOk);
  EXPECT_EQ(troupe.cluster.asked.back().split_function().wish_case(), proto::SplitFunction::kPromote);
  EXPECT_EQ(troupe.Run("function rollback f"), ExitCode::kOk);
  EXPECT_TRUE(troupe.cluster.asked.back().split_function().roll_back());
  EXPECT_EQ(troupe.Run("function follow f"), ExitCode::kOk);
  EXPECT_TRUE(troupe.cluster.asked.back().split_function().has_shares());
  const auto asked = troupe.cluster.asked.size();
  for (const char* weight : {"0", "100%", "10.5", "-1", "much"})
    EXPECT_EQ(troupe.Run(Cat("function canary f --version 2 --weight=", std::string(weight))),
              ExitCode::kUsage);
  EXPECT_EQ(troupe.cluster.asked.size(), asked);
}

}  // namespace
}  // namespace troupe::shell
