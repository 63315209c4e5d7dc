#!/usr/bin/python3
"""Manager and gateway in one process, two nodes in two more: tensors cross processes, a workflow spans them, and a node
may die."""

import numpy as np

from harness import E2eTest, Load, StartFailed, eventually, main
from harness.daemon import BIN
from harness.networks import digits, ensemble, scale

ONES = {"x": np.ones((2, 4), np.float32)}


class Cluster(E2eTest):
    def setUp(self):
        super().setUp()
        self.front, self.nodes = self.start_cluster(2)
        self.http = self.front.http

    def test_ensemble_is_the_average_of_its_networks(self):
        functions, workflow = ensemble()
        for name, onnx in functions.items():
            self.http.deploy(name, onnx).good()
        submitted = self.http.call("POST", "/v2/troupe/workflows", workflow).good().json
        self.assertEqual(submitted["spec"]["name"], "ensemble")
        metadata = eventually(lambda: self.http.get("/v2/models/ensemble").code == 200 and
                              self.http.get("/v2/models/ensemble").json, "the gateway knows the workflow")
        self.assertEqual(metadata["inputs"], [{"name": "image", "datatype": "FP32", "shape": [-1, 1, 8, 8]}])
        _, images, labels = digits()
        right = 0
        for first in range(0, 360, 120):
            image = {"image": images[first:first + 120]}
            average = np.array(self.http.infer("ensemble", image)["probabilities"])
            parts = [np.array(self.http.infer(f"digits-{name}", image)["probabilities"]) for name in ("cnn", "mlp", "wide")]
            np.testing.assert_allclose(average, sum(parts) / 3, rtol=1e-3, atol=1e-6)
            right += int((average.reshape(-1, 10).argmax(1) == labels[first:first + 120]).sum())
        self.assertGreaterEqual(right / 360, 0.97)
        eventually(lambda: int(self.http.get("/v2/troupe/cluster").good().json["runs"]) == 3, "three runs are kept")
        statistics = self.http.get("/v2/models/ensemble/stats").good().json["model_stats"][0]
        self.assertEqual(int(statistics["inference_count"]), 3)
        self.assertEqual(int(statistics["inference_stats"]["success"]["count"]), 3)

    def test_workflows_are_checked_at_submission(self):
        self.http.deploy("double", scale(2)).good()
        step = "  - {{name: {0}, function: {1}, inputs: {{x: {2}}}}}\n"
        head = "name: chain\ninputs:\n  x: {type: FP32, shape: [-1, 4]}\nsteps:\n"
        wrong = {
            "unknown function": step.format("a", "triple", "x"),
            "cycle": step.format("a", "double", "b.y") + step.format("b", "double", "a.y"),
            "unknown tensor": step.format("a", "double", "z"),
        }
        for what, steps in wrong.items():
            answer = self.http.call("POST", "/v2/troupe/workflows", head + steps + "outputs:\n  y: a.y\n")
            self.assertEqual(answer.code, 400, f"{what}: {answer.body}")
            self.assertRegex(answer.error, r"line \d", what)
        good = head + step.format("a", "double", "x") + step.format("b", "double", "a.y") + "outputs:\n  y: b.y\n"
        self.http.call("POST", "/v2/troupe/workflows", good).good()
        eventually(lambda: self.http.get("/v2/models/chain").code == 200, "the gateway knows the workflow")
        self.assertEqual(self.http.infer("chain", ONES)["y"], [4.0] * 8)
        wrong_shape = self.http.ask("chain", {"x": np.ones((2, 5), np.float32)})
        self.assertEqual(wrong_shape.code, 400, wrong_shape.body)
        self.http.call("DELETE", "/v2/troupe/workflows/chain").good()
        eventually(lambda: self.http.ask("chain", ONES).code == 404, "the workflow is gone")

    def test_large_tensors_cross_processes(self):
        self.http.deploy("double", scale(2, 1024)).good()
        x = np.arange(1024 * 512, dtype=np.float32).reshape(512, 1024)
        np.testing.assert_array_equal(self.http.infer("double", {"x": x})["y"], (2 * x).reshape(-1))

    def test_a_node_that_dies_is_replaced_by_the_other(self):
        self.http.deploy("double", scale(2)).good()
        eventually(lambda: len(self.http.function("double")["adopted_by"]) == 2, "both nodes hold a copy")

        def ask():
            self.assertEqual(self.http.infer("double", ONES)["y"], [2.0] * 8)

        load = Load(ask)
        load.wait(20)
        self.nodes[0].kill_node()
        eventually(lambda: self.http.members().get("node-0") == "DEAD", "the cluster shows the node dead")
        load.wait(20)
        load.stop()
        self.assertEqual(self.http.members()["node-1"], "ALIVE")
        # The node comes back under its name and serves again.
        self.nodes[0] = self.start("node-0", "node", manager=self.front.address("manager"))
        eventually(lambda: self.http.members()["node-0"] == "ALIVE", "the node is back")
        self.nodes[1].kill_node()
        ask()

    def test_a_node_that_stops_cleanly_fails_no_request(self):
        self.http.deploy("double", scale(2)).good()
        eventually(lambda: len(self.http.function("double")["adopted_by"]) == 2, "both nodes hold a copy")
        load = Load(lambda: self.assertEqual(self.http.infer("double", ONES)["y"], [2.0] * 8))
        load.wait(10)
        self.assertEqual(self.nodes[0].terminate(), 0)
        load.wait(20)
        load.stop()
        self.assertIn(self.http.members().get("node-0", "LEFT"), ("LEFT", "DEAD"))


class ANodesWorkers(E2eTest):
    def setUp(self):
        super().setUp()
        self.front, (self.node,) = self.start_cluster(1)

    def test_a_node_on_which_no_worker_comes_up_gets_no_requests(self):
        programs = self.directory / "programs"
        programs.mkdir()
        worker = programs / "troupe-gpu-worker"
        worker.write_text("#!/bin/sh\nexit 1\n")
        worker.chmod(0o755)
        (programs / "troupe-import").symlink_to(BIN / "troupe-import")
        broken = self.start("broken", "node", manager=self.front.address("manager"), bin=programs)
        self.front.http.deploy("double", scale(2)).good()
        for _ in range(40):
            self.assertEqual(self.front.http.infer("double", ONES)["y"], [2.0] * 8)
        eventually(lambda: "exited with code 1" in broken.operations.get("/healthz").body.decode(), "the node says why")
        worker.unlink()
        worker.symlink_to(BIN / "troupe-gpu-worker")
        eventually(lambda: broken.operations.get("/healthz").code == 200, "a worker that comes up all the same is used")

    def test_a_second_node_does_not_take_them(self):
        before = self.node.workers()
        with self.assertRaises(StartFailed) as failed:
            self.start("second", "node", manager=self.front.address("manager"), run=self.node.settings["run"])
        self.assertIn(f"is locked by pid {self.node.process.pid}", failed.exception.errors)
        self.assertEqual(failed.exception.code, 2)
        self.assertEqual(self.node.workers(), before)


if __name__ == "__main__":
    main()
