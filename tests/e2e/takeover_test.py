#!/usr/bin/python3
"""A gateway that is killed while its workflow runs work: another gateway goes on behind their last committed steps."""
import os
import signal
import threading

import numpy as np

from harness import E2eTest, eventually, main
from harness.client import infer_body
from harness.networks import accumulate

X = np.zeros((1, 256), np.float32)
X[0, 0] = 1
QUERY = "?state=s%3Dt"
CHAIN = """name: chain
inputs:
  x: {type: FP32, shape: [1, 256]}
steps:
  - {name: one, function: first, inputs: {x: x}}
  - {name: two, function: second, inputs: {x: one.y}}
outputs: {y: two.y}
"""
KEYS = [f"run-{i}" for i in range(4)]


class Takeover(E2eTest):
    def setUp(self):
        super().setUp()
        manager = self.start("manager", "manager").address("manager")
        self.gateways = [self.start(f"gateway-{i}", "gateway", manager=manager) for i in range(2)]
        self.nodes = {f"node-{i}": self.start(f"node-{i}", "node", manager=manager) for i in range(2)}
        self.left, self.right = (gateway.http for gateway in self.gateways)
        for http in (self.left, self.right):
            eventually(lambda: http.get("/v2/health/ready").code == 200, "the front is ready")
        # Functions with state count their runs, and each has one node: the steps can be told apart.
        self.left.deploy("first", accumulate(1), QUERY).good()
        self.left.deploy("second", accumulate(4), QUERY).good()
        self.left.call("POST", "/v2/troupe/workflows", CHAIN).good()
        for http in (self.left, self.right):
            eventually(lambda: http.get("/v2/models/chain/ready").code == 200, "the gateway knows the workflow")
        homes = [self.left.function(name)["adopted_by"] for name in ("first", "second")]
        self.assertNotEqual(*homes, "each node has one of two models")
        self.slow = self.nodes[homes[1][0]]

    def run_of(self, key):
        return self.right.get(f"/v2/troupe/runs/{key}").good().json

    def submit(self, http, key):
        return http.call("POST", "/v2/models/chain/infer", self.body, {"Idempotency-Key": key})

    def test_runs_go_on_at_the_other_gateway_and_end_once(self):
        self.body = infer_body({"x": X})
        worker = next(iter(self.slow.workers().values()))
        os.kill(worker, signal.SIGSTOP)
        cut = []

        def ask(key):
            try:
                self.submit(self.left, key)
            except OSError:
                cut.append(key)
        clients = [threading.Thread(target=ask, args=(key,)) for key in KEYS]
        for client in clients:
            client.start()
        for key in KEYS:
            eventually(lambda: self.right.get(f"/v2/troupe/runs/{key}").code == 200 and
                       len(self.run_of(key).get("steps", [])) == 1, f"the first step of {key} is committed")
        self.gateways[0].kill()
        for client in clients:
            client.join()
        self.assertEqual(sorted(cut), KEYS, "no client was answered by the gateway that died")
        for key in KEYS:
            eventually(lambda: self.run_of(key)["gateway"] == "gateway-1", f"{key} is at the other gateway")
        os.kill(worker, signal.SIGCONT)
        ends = {key: self.submit(self.right, key).good().json["outputs"] for key in KEYS}
        runs = {run["start"]["run"]: run for run in self.right.get("/v2/troupe/runs").good().json}
        self.assertEqual(sorted(runs), KEYS)
        counts = set()
        for key in KEYS:
            self.assertEqual(runs[key]["state"], "RUN_SUCCEEDED", runs[key])
            self.assertEqual([step["step"] for step in self.run_of(key)["steps"]], ["one", "two"])
            self.assertEqual(self.submit(self.right, key).good().json["outputs"], ends[key], "the outcome stays the same")
            y = np.array(ends[key][0]["data"])
            np.testing.assert_array_equal(y, y[0] * np.arange(1, 1025))
            counts.add(y[0])
        self.assertEqual(len(counts), len(KEYS), "no two runs were computed on the same state")
        # The next run of the first function is the fifth: no committed step was computed again.
        np.testing.assert_array_equal(self.right.infer("first", {"x": X})["y"],
                                      2 * (len(KEYS) + 1) * np.arange(1, 1025))


if __name__ == "__main__":
    main()
