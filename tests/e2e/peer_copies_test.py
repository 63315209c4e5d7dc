#!/usr/bin/python3
"""Two GPUs with a link between them: a model on one GPU is copied to the other over it, and a GPU that dies meanwhile costs
no request."""
import os
import re
import signal
import threading

import numpy as np

from harness import E2eTest, Load, eventually, main
from harness.networks import dense
from harness.shell import Shell

MODELS = 3


class PeerCopies(E2eTest):
    def serve(self, link, addresses="adjacent"):
        self.daemon = self.start("one", "all", gpus=2, gpu_memory="10MiB", link_bandwidth="200MB", policy="torpor",
                                 log_level="debug", addresses=addresses,
                                 topology=f"switch:0-1,link:0-1={link}").wait_serving(gpus=2)
        self.rows, self.turn, self.guard = [], 0, threading.Lock()
        for i in range(MODELS):
            onnx, weight = dense(4, seed=i)
            self.daemon.http.deploy(f"dense-{i}", onnx).good()
            self.rows.append(weight[0])
        self.x = np.zeros((1, weight.shape[0]), np.float32)
        self.x[0, 0] = 1

    def ask(self, i):
        found = np.array(self.daemon.http.infer(f"dense-{i}", {"x": self.x})["y"])
        np.testing.assert_allclose(found, self.rows[i], rtol=1e-4, atol=1e-5)

    def in_turn(self):
        """Some requests for one function, then some for the next: two at a time, so that both GPUs need the same model."""
        with self.guard:
            self.turn += 1
            i = self.turn // 8 % MODELS
        self.ask(i)

    def events(self, kind):
        return re.findall(rf"(?:info|debug) {kind}: (.*)", self.daemon.log.read_text())

    def copies(self):
        return [swap for swap in self.events("swap") if "from GPU" in swap]

    def figure(self, name):
        found = re.search(rf"^{name} (\S+)$", self.daemon.operations.get("/metrics").body.decode(), re.M)
        return float(found.group(1)) if found else 0

    def test_a_replica_comes_from_the_gpu_that_has_the_model(self):
        self.replicate("adjacent")

    def test_a_replica_comes_in_the_blocks_that_it_was_mapped_in(self):
        self.replicate("mapped")

    def replicate(self, addresses):
        self.serve(link="2GB", addresses=addresses)
        load = Load(self.in_turn, threads=4)
        eventually(lambda: len(self.copies()) >= 5, "models are copied from GPU to GPU")
        load.stop()
        self.assertRegex(self.copies()[0], r"GPU [01]: 'dense-\d' from GPU [01], 4 MiB in ")
        self.assertFalse(self.events("swap-failed"))
        eventually(lambda: self.figure(r'troupe_node_model_was_total\{node="one",source="peer"\}') >= 5, "copies are counted")
        shell = Shell(self.daemon.address("manager"), self.directory)
        swaps = [swap for gpu in (0, 1) for swap in shell.json("gpu", "show", f"one/{gpu}")["gpus"][0]["swaps"]]
        self.assertIn("peer", {swap["source"] for swap in swaps})

    def test_a_source_that_dies_in_mid_copy_costs_no_request(self):
        self.serve(link="500KB")  # a copy between GPUs takes 8 s, a load from the host 0.02 s
        shell = Shell(self.daemon.address("manager"), self.directory)

        def models(gpu, *states):
            shown = shell.json("gpu", "show", f"one/{gpu}")["gpus"][0].get("models", [])
            return {model["digest"] for model in shown if model["state"] in states}

        def copying():
            """Waits until a copy from GPU 0 to GPU 1 is under way: a load from the host would end between two looks."""
            return models(1, "loading") and models(1, "loading") & models(0, "resident", "running") & models(1, "loading")
        load = Load(self.in_turn, threads=4)
        for lives in range(1, 9):
            eventually(lambda: len([ready for ready in self.events("worker-ready") if "GPU 0" in ready]) >= lives,
                       "GPU 0 has a worker again")
            coming = eventually(copying, "a model is on its way from GPU 0 to GPU 1")
            os.kill(self.daemon.workers()[0], signal.SIGKILL)
            eventually(lambda: self.events("swap-failed") or not coming & models(1, "loading"), "the copy has ended")
            if self.events("swap-failed"):
                break
        load.stop()
        self.assertRegex("\n".join(self.events("swap-failed")), r"GPU 1: 'dense-\d' from GPU 0: ")
        for i in range(MODELS):
            self.ask(i)


if __name__ == "__main__":
    main()
