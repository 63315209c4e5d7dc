#!/usr/bin/python3
"""The presets of LALB (003) over the GPUs of several nodes: the gateway names the GPU of each request, and the node obeys."""
import os
import re
import signal
import threading

import numpy as np

from harness import E2eTest, Load, StartFailed, eventually, main
from harness.networks import dense

MODELS = 3
PRESETS = ("load-balance", "lalb", "lalb-o3")


class Lalb(E2eTest):
    def cluster(self, preset, node_preset=None, link="40MB", memory="10MiB", **options):
        """Two nodes of one GPU, which holds two models; a gateway with the preset."""
        self.front = self.start("front", "manager,gateway", policy=preset)
        self.nodes = [self.start(f"node-{i}", "node", manager=self.front.address("manager"), policy=node_preset or preset,
                                 gpu_memory=memory, link_bandwidth=link, measure="requests", log_level="debug", **options)
                      for i in range(2)]
        self.front.wait_serving(gpus=0)
        self.rows, self.turn, self.guard = [], 0, threading.Lock()

    def deploy(self, count):
        for i in range(count):
            onnx, weight = dense(4, seed=i)
            self.front.http.deploy(f"dense-{i}", onnx).good()
            self.rows.append(weight[0])
        self.x = np.zeros((1, weight.shape[0]), np.float32)
        self.x[0, 0] = 1

    def ask(self, i):
        found = np.array(self.front.http.infer(f"dense-{i}", {"x": self.x})["y"])
        np.testing.assert_allclose(found, self.rows[i], rtol=1e-4, atol=1e-5)

    def in_turn(self):
        with self.guard:
            self.turn += 1
            i = self.turn % MODELS
        self.ask(i)

    def swaps(self):
        """Loads of both nodes from the host."""
        return [swap for node in self.nodes for swap in re.findall(r"(?:info|debug) swap: (.*)", node.log.read_text())]

    def lose_what_can_be_lost(self, preset):
        self.cluster(preset)
        self.deploy(MODELS)
        load = Load(self.in_turn, threads=4)
        load.wait(30)
        for node in self.nodes:
            self.assertRegex(node.log.read_text(), r"swap: GPU 0: 'dense-\d'", "both GPUs take part")
        os.kill(self.nodes[0].workers()[0], signal.SIGKILL)
        load.wait(60)
        self.nodes[1].kill_node()
        load.wait(60)
        load.stop()

    def test_load_balance_loses_no_request(self):
        self.lose_what_can_be_lost("load-balance")

    def test_lalb_loses_no_request(self):
        self.lose_what_can_be_lost("lalb")

    def test_lalb_o3_loses_no_request(self):
        self.lose_what_can_be_lost("lalb-o3")

    def hot_model(self, preset):
        """A load takes four seconds and a run some milliseconds: more requests for one model than one GPU has idle moments."""
        self.cluster(preset, link="1MB")
        self.deploy(1)
        self.ask(0)
        return Load(lambda: self.ask(0), threads=3)

    def wait_for_the_holder(self, preset):
        load = self.hot_model(preset)
        load.wait(200)
        load.stop()
        self.assertEqual(len(self.swaps()), 1, self.swaps())

    def test_with_lalb_requests_wait_for_the_gpu_that_has_their_model(self):
        self.wait_for_the_holder("lalb")

    def test_with_lalb_o3_requests_wait_for_the_gpu_that_has_their_model(self):
        self.wait_for_the_holder("lalb-o3")

    def test_whichever_gpu_is_idle_takes_it_without_locality(self):
        load = self.hot_model("load-balance")
        eventually(lambda: len(self.swaps()) == 2, "both GPUs have the model")
        load.wait(20)
        load.stop()
        self.assertEqual(len(self.swaps()), 2, self.swaps())

    def test_isolation_is_refused_by_name(self):
        for preset in PRESETS:
            with self.assertRaises(StartFailed) as failed:
                self.start(f"isolated-{preset}", "all", policy=preset, isolation="tenant")
            self.assertIn(preset, failed.exception.errors)
            self.assertIn("isolat", failed.exception.errors)
        # A gateway cannot know how its nodes are set up before they tell.
        self.cluster("lalb", node_preset="torpor", isolation="tenant", memory="30MiB")
        self.deploy(1)
        answer = self.front.http.ask("dense-0", {"x": self.x})
        self.assertIn("has isolated runtimes", answer.error)


if __name__ == "__main__":
    main()
