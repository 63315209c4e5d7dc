#include "sim/cluster_file.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

namespace troupe::sim {
namespace {

using testing::HasSubstr;

TEST(ClusterFile, ReadsWhatThereIs) {
  const auto cluster = ParseCluster(
      "nodes: 2\ngpus: 4\ngpu-memory: 32GiB\nlink: 12GB\ntopology: v100x4\nloads: atomic\ntimeout: 5s\n"
      "models:\n- {name: a, memory: 1GiB, run: 10ms, load: 2s, swapped: 15ms, deadline: 80ms}\n"
      "- {name: b, memory: 2GiB, run: 1s}\n",
      "c.yaml");
  ASSERT_TRUE(cluster.ok()) << cluster.status();
  EXPECT_EQ(cluster->gpus, 4u);
  EXPECT_TRUE(cluster->topology.ShareSwitch(0, 1));
  EXPECT_EQ(cluster->loads, LoadMode::kAtomic);
  EXPECT_EQ(cluster->link_sharing, gpu::LinkSharing::kDeadline) << "the default is that of the product";
  ASSERT_EQ(cluster->models.size(), 2u);
  EXPECT_EQ(cluster->models[0].times.load, std::chrono::seconds(2));
  EXPECT_EQ(cluster->models[1].deadline, Duration());

  const auto models = AssignModels(*cluster, {{"f", ""}, {"g", "b"}, {"h", ""}, {"i", ""}});
  ASSERT_TRUE(models.ok());
  EXPECT_EQ(*models, (std::vector<std::size_t>{0, 1, 0, 1}));
  const auto unknown = AssignModels(*cluster, {{"f", "vgg"}}).status();
  EXPECT_THAT(std::string(unknown.message()),
              HasSubstr("model 'vgg', expected one of the cluster file's: a, b"));
}

TEST(ClusterFile, GpusOfSeveralKindsAndRuntimes) {
  const std::string models =
      "models:\n- {name: a, memory: 1GB, run: 10ms, runtime-memory: 1.6GB, cold-start: 8s, runtime-run: "
      "25ms}\n";
  const auto cluster = ParseCluster(
      "link: 10GB\nhost-copies: 1\ngpu-kinds:\n- {name: v100, count: 2, memory: 32GB, link: 12GB}\n"
      "- {name: t4, count: 1, memory: 16GB, speed: 0.5}\n" +
          models,
      "c.yaml");
  ASSERT_TRUE(cluster.ok()) << cluster.status();
  EXPECT_EQ(cluster->gpus, 3u);
  EXPECT_EQ(cluster->host_copies, 1u);
  EXPECT_EQ(cluster->KindOf(0, 1).name, "v100");
  EXPECT_EQ(cluster->KindOf(0, 1).link.value, 12e9);
  EXPECT_EQ(cluster->KindOf(0, 2).speed, 0.5);
  EXPECT_EQ(cluster->KindOf(0, 2).link.value, 10e9);  // the link of the cluster
  EXPECT_EQ(cluster->KindOf(1, 1).name, "v100") << "every node has GPUs of both kinds";
  auto by_turn = *cluster;
  by_turn.kinds_are = KindsAre::kInNodesByTurn;
  EXPECT_EQ(by_turn.KindOf(0, 2).name, "v100");
  EXPECT_EQ(by_turn.KindOf(1, 0).speed, 0.5);
  EXPECT_EQ(by_turn.KindOf(2, 2).name, "v100");
  EXPECT_EQ(cluster->LargestMemory(), Bytes(32'000'000'000));
  EXPECT_EQ(cluster->models[0].runtime.footprint, Bytes(1'600'000'000));
  EXPECT_EQ(cluster->models[0].runtime.cold_start, std::chrono::seconds(8));

  const std::map<std::string, std::string> wrong = {
      {"gpus: 2\ngpu-kinds:\n- {name: a, memory: 1GB}\n" + models, "c.yaml:3:1: expected either gpu-kinds"},
      {"gpu-kinds: []\n" + models, "c.yaml:1:12: gpu-kinds: expected a list"},
      {"gpu-kinds:\n- {name: a}\n" + models, "c.yaml:2:3: a kind of GPU needs a name and its memory"},
      {"gpu-kinds:\n- {name: a, memory: 2GB, speed: -1}\n" + models, "speed: found '-1', expected a factor"},
      {"gpu-kinds:\n- {name: a, memory: 1500MB}\n" + models, "model 'a' takes"},
  };
  for (const auto& [text, message] : wrong)
    EXPECT_THAT(std::string(ParseCluster(text, "c.yaml").status().message()), HasSubstr(message)) << text;
}

TEST(ClusterFile, WhatIsWrongIsToldWithItsPlace) {
  const std::string models = "models:\n- {name: a, memory: 1GiB, run: 1s}\n";
  const std::map<std::string, std::string> wrong = {
      {"gpus: 0\n" + models, "c.yaml:1:7: gpus: found '0', expected an integer from 1"},
      {"gpus: many\n" + models, "c.yaml:1:7: gpus: found 'many'"},
      {"nodes: 1\ncolour: red\n" + models,
       "c.yaml:2:1: found 'colour', expected one of: gateways, gpu-kinds, gpu-memory"},
      {"gpu-memory: 8\n topology: [\n", "this is not valid YAML"},
      {"link-sharing: fairly\n" + models, "choose one of: exclusive, shared, deadline"},
      {"loads: slowly\n" + models, "'slowly' is not a valid way of loading; choose one of: atomic"},
      {"gpus: 2\ntopology: v100x4\n" + models, "c.yaml:2:11:"},
      {"gpus: 2\ntopology: ring\n" + models, "c.yaml:2:11: topology: found 'ring'"},
      {"gpus: 2\n", "expected a list 'models:'"},
      {"models: []\n", "c.yaml:1:9: models: expected a list"},
      {"models:\n- {name: a, memory: 1GiB}\n", "c.yaml:2:3: a model needs a name, its memory and its run"},
      {"models:\n- {name: a, memory: -1, run: 1s}\n", "c.yaml:2:21: memory: found '-1'"},
      {"models:\n- {name: a, memory: 1GiB, run: 5}\n", "run: found '5', expected a time such as 80ms"},
      {"gpu-memory: 1GiB\nmodels:\n- {name: a, memory: 2GiB, run: 1s}\n", "more than a GPU has"},
      {models + "- {name: a, memory: 1GiB, run: 1s}\n", "c.yaml:3:3: model 'a' is there twice"},
  };
  for (const auto& [text, message] : wrong) {
    const auto cluster = ParseCluster(text, "c.yaml");
    EXPECT_EQ(cluster.status().code(), absl::StatusCode::kInvalidArgument) << text;
    EXPECT_THAT(std::string(cluster.status().message()), HasSubstr(message)) << text;
  }
  EXPECT_EQ(ReadCluster("/nowhere/at.all").status().code(), absl::StatusCode::kNotFound);
}

}  // namespace
}  // namespace troupe::sim
