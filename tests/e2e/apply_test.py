#!/usr/bin/python3
"""Functions and workflows as files say, by the real programs: applied, changed, canaried, promoted, rolled back."""
import collections

import numpy as np

from harness import E2eTest, Load, eventually, main
from harness.networks import scale
from harness.shell import Shell

X = {"x": np.ones((1, 4), np.float32)}

FLOW = """
kind: workflow
name: flow
inputs:
  x: {type: FP32, shape: [-1, 4]}
steps:
  - name: first
    function: times
    inputs: {x: x}
outputs:
  y: first.y
"""


class Apply(E2eTest):
    def setUp(self):
        super().setUp()
        self.files = self.directory / "files"
        self.files.mkdir()
        for factor in (2, 3, 5):
            (self.files / f"times-{factor}.onnx").write_bytes(scale(factor))
        (self.files / "other.onnx").write_bytes(scale(2, width=8))
        self.manager = self.start("manager", "manager")
        self.address = self.manager.address("manager")
        self.start("node", "node", manager=self.address)
        self.gateway = self.start("gateway", "gateway", manager=self.address)
        self.gateway.wait_serving(gpus=0)
        self.shell = Shell(self.address, self.directory)

    def write(self, text, name="cluster.yaml"):
        (self.files / name).write_text(text)
        return self.files / name

    def versions(self, requests, name="times"):
        """{version: how many of the requests it answered}, each with the answer of its model."""
        factors = {"1": 2, "2": 3, "3": 5}
        counts = collections.Counter()
        for _ in range(requests):
            answer = self.gateway.http.ask(name, X).good().json
            version = answer["model_version"]
            self.assertEqual(answer["outputs"][0]["data"], [factors[version]] * 4)
            counts[version] += 1
        return dict(counts)

    def answers(self, *versions):
        """Until requests are answered by these versions alone, and by each of them."""
        eventually(lambda: set(self.versions(8)) == set(versions), f"the versions {versions} answer")

    def test_a_cluster_becomes_as_files_say(self):
        function = "kind: function\nname: times\nmodel: {}\ndeadline: 50ms\n---"
        file = self.write(function.format("times-2.onnx") + FLOW)
        self.assertIn("2 changes, 0 unchanged", self.shell.run("diff", "-f", file, code=1).stdout)
        self.assertIn("2 changes, 0 unchanged", self.shell.text("apply", "-f", file, "--dry-run"))
        self.assertEqual(self.shell.json("function", "list")["functions"], [])
        self.assertIn("function times version 1 is created\nworkflow flow is created\n",
                      self.shell.text("apply", "-f", file))
        self.answers("1")
        eventually(lambda: self.gateway.http.get("/v2/models/flow").code == 200, "the workflow is known")
        self.assertEqual(self.gateway.http.infer("flow", X)["y"], [2] * 4)
        # The same again changes nothing, as a file and as a directory.
        self.assertEqual(self.shell.text("apply", "-f", file), "0 changes, 2 unchanged\n")
        self.assertEqual(self.shell.text("diff", "-f", self.files), "0 changes, 2 unchanged\n")
        # A changed model is a new version, which answers.
        self.write(function.format("times-3.onnx") + FLOW)
        out = self.shell.text("apply", "-f", file)
        self.assertIn("~ function times version 2\n    model: sha256:", out)
        self.answers("2")
        self.assertEqual(self.shell.text("apply", "-f", file), "0 changes, 2 unchanged\n")
        # What was exported changes nothing.
        exported = self.shell.text("export")
        self.assertIn("kind: workflow", exported)
        self.assertEqual(self.shell.run("apply", "-f", "-", stdin=exported).stdout, "0 changes, 2 unchanged\n")
        self.assertEqual(self.shell.run("diff", "-f", "-", stdin=self.shell.text("export", "times")).stdout,
                         "0 changes, 1 unchanged\n")
        # Pruned when a person says so.
        only = self.write("kind: function\nname: times\nmodel: times-3.onnx\n", "only.yml")
        self.shell.run("apply", "-f", only, "--prune", code=1)
        self.assertEqual(len(self.shell.json("workflow", "list")["workflows"]), 1)
        self.assertIn("workflow flow version 1 is removed", self.shell.text("apply", "-f", only, "--prune", "--yes"))
        self.assertEqual(self.shell.json("workflow", "list")["workflows"], [])

    def test_nothing_is_sent_of_what_is_wrong_and_what_failed_is_told(self):
        wrong = self.write("kind: function\nname: times\nmodel: times-2.onnx\n---\n"
                           "kind: function\nname: second\nmodle: times-2.onnx\n")
        error = self.shell.error("apply", "-f", wrong, code=2)
        self.assertIn("cluster.yaml:7: a function has no 'modle'; did you mean 'model'?", error)
        self.assertEqual(self.shell.json("function", "list")["functions"], [])
        # A file that is no model is found by its import: what stands before it is there.
        (self.files / "text.onnx").write_text("not a model")
        self.write("kind: function\nname: times\nmodel: times-2.onnx\n---\nkind: function\nname: second\n"
                   "model: text.onnx\n---\nkind: function\nname: third\nmodel: times-3.onnx\n")
        done = self.shell.run("apply", "-f", wrong, code=1)
        self.assertIn("cluster.yaml:5: function second version 1: ", done.stderr)
        self.assertIn("done: function times version 1\n", done.stderr)
        self.assertIn("not done: function second version 1, function third version 1\n", done.stderr)
        names = [entry["record"]["key"]["name"] for entry in self.shell.json("function", "list")["functions"]]
        self.assertEqual(names, ["times"])
        # A workflow's mistake has its line in the file.
        self.write("kind: function\nname: times\nmodel: times-2.onnx\n---" + FLOW.replace("function: times", "fun: times"))
        done = self.shell.run("apply", "-f", wrong, code=2)
        self.assertIn("line 11: step 'first' has no 'fun'", done.stderr)

    def test_a_change_of_the_sharing_alone_updates_the_version_that_is_served(self):
        function = "kind: function\nname: times\nmodel: times-2.onnx\n"
        file = self.write(function + "sm_partition: 24%\n")
        self.shell.text("apply", "-f", file)
        self.answers("1")
        load = Load(lambda: self.gateway.http.ask("times", X).good(), threads=2)
        load.wait(10)
        file = self.write(function + "quota_request: 30%\nquota_limit: 80%\ngpu_mem: 1GiB\nmax_batch: 8\n")
        out = self.shell.text("apply", "-f", file)
        self.assertIn("~ function times version 1\n    sm_partition: 24% -> -\n    quota_request: - -> 30%\n", out)
        self.assertIn("function times version 1 is changed\n", out)
        self.assertEqual(self.shell.text("diff", "-f", file), "0 changes, 1 unchanged\n")
        load.wait(10)
        load.stop()
        # What is wrong is told with its line before anything changes.
        wrong = self.write(function + "quota_limit: 20%\nquota_request: 30%\n", "wrong.yml")
        self.assertIn("wrong.yml:5: quota_request is 30 % and quota_limit 20 %",
                      self.shell.error("apply", "-f", wrong, code=2))
        wrong.write_text(function + "qouta_limit: 20%\n")
        self.assertIn("wrong.yml:4: a function has no 'qouta_limit'; did you mean 'quota_limit'?",
                      self.shell.error("apply", "-f", wrong, code=2))
        # It is exported, written down, and there after a restart of the manager.
        exported = self.shell.text("export", "times")
        self.assertIn("    gpu_mem: 1GiB\n", exported)
        self.assertEqual(self.shell.run("diff", "-f", "-", stdin=exported).stdout, "0 changes, 1 unchanged\n")
        lines = self.shell.text("audit", "--data", self.manager.settings["data"], "--what", "function", "--last", "1000")
        self.assertIn("function.update", lines)
        self.assertIn("quota_request 30%, quota_limit 80%, gpu_mem 1GiB, max_batch 8", lines)
        port = self.address.rpartition(":")[2]
        self.assertEqual(self.manager.terminate(), 0)
        self.manager = self.start("manager", "manager", manager=f"127.0.0.1:{port}")
        eventually(lambda: set(self.gateway.http.members().values()) == {"ALIVE"}, "the members are back")
        self.assertEqual(self.shell.text("apply", "-f", file), "0 changes, 1 unchanged\n")
        self.assertEqual(len(self.shell.json("function", "list")["functions"]), 1)

    def test_a_canary_gets_its_share_and_keeps_it_over_a_restart(self):
        file = self.write("kind: function\nname: times\nmodel: times-2.onnx\n")
        self.shell.text("apply", "-f", file)
        self.answers("1")
        file = self.write("kind: function\nname: times\nversions:\n  1: 75%\n  2: {model: times-3.onnx, weight: 25%}\n")
        self.shell.text("apply", "-f", file)
        self.assertEqual(self.shell.text("apply", "-f", file), "0 changes, 1 unchanged\n")
        self.answers("1", "2")
        self.assertEqual(self.versions(400), {"1": 300, "2": 100})
        self.assertIn("25 % of those that name no version (canary)", self.shell.text("function", "show", "times"))
        stats = self.gateway.http.get("/v2/models/times/versions/2/stats").good().json["model_stats"][0]
        self.assertGreaterEqual(int(stats["inference_count"]), 100)
        # A workflow's step, and a request that names a version.
        named = self.gateway.http.call("POST", "/v2/models/times/versions/1/infer",
                                       b'{"inputs":[{"name":"x","datatype":"FP32","shape":[1,4],"data":[1,1,1,1]}]}')
        self.assertEqual(named.good().json["model_version"], "1")
        # Not removed while it gets requests, nor does another signature share them.
        self.assertIn("is a canary and gets 25 %", self.shell.error("function", "remove", "times", code=1))
        self.shell.text("function", "deploy", "times", self.files / "other.onnx", "--version", "9")
        self.shell.text("function", "rollback", "times")
        error = self.shell.error("function", "canary", "times", "--version", "9", "--weight", "5%", code=1)
        self.assertIn("function 'times' version 9 has the input 'x' as FP32 [-1, 8] instead of FP32 [-1, 4]", error)
        self.shell.text("function", "remove", "times", "--version", "9")
        self.shell.text("function", "canary", "times", "--version", "2", "--weight", "25%")
        self.answers("1", "2")
        # The manager forgets nothing.
        port = self.address.rpartition(":")[2]
        self.assertEqual(self.manager.terminate(), 0)
        self.assertEqual(self.versions(8), {"1": 6, "2": 2})
        self.manager = self.start("manager", "manager", manager=f"127.0.0.1:{port}")
        eventually(lambda: set(self.gateway.http.members().values()) == {"ALIVE"}, "the members are back")
        self.assertEqual(self.shell.text("apply", "-f", file), "0 changes, 1 unchanged\n")
        self.assertEqual(self.versions(400), {"1": 300, "2": 100})
        # Promoted over HTTP, rolled back by the shell.
        promoted = self.gateway.http.call("POST", "/v2/troupe/functions/times/promote").good().json
        self.assertEqual([entry["record"]["share_percent"] for entry in promoted], [0, 100])
        self.answers("2")
        self.assertEqual(self.shell.text("function", "rollback", "times"), "times: version 1 gets 100 %\n")
        self.answers("1")
        self.assertIn("weight: 100%", self.shell.text("export", "times"))
        self.assertEqual(self.shell.text("function", "follow", "times"), "times: the newest version gets all requests\n")
        self.answers("2")
        lines = self.shell.text("audit", "--data", self.manager.settings["data"], "--what", "function", "--last", "1000")
        for action in ("function.split", "function.canary", "function.promote", "function.rollback"):
            self.assertIn(action, lines)


if __name__ == "__main__":
    main()
