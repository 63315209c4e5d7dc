#!/usr/bin/python3
"""Two GPUs with a link between them: a model that one loads from the host is copied to the other as it arrives, and a GPU
that dies meanwhile costs no request."""
import os
import re
import signal
import threading

import numpy as np

from harness import E2eTest, eventually, main
from harness.networks import dense

MODELS = 3


class Broadcasts(E2eTest):
    def serve(self, link="2GB", **flags):
        self.daemon = self.start("one", "all", gpus=2, gpu_memory="10MiB", link_bandwidth="20MB", gpu="most-free",
                                 log_level="debug", measure="requests", topology=f"link:0-1={link}", **flags).wait_serving(gpus=2)
        self.rows = []
        for i in range(MODELS):
            onnx, weight = dense(4, seed=i)
            self.daemon.http.deploy(f"dense-{i}", onnx).good()
            self.rows.append(weight[0])
        self.x = np.zeros((1, weight.shape[0]), np.float32)
        self.x[0, 0] = 1

    def ask(self, i):
        found = np.array(self.daemon.http.infer(f"dense-{i}", {"x": self.x})["y"])
        np.testing.assert_allclose(found, self.rows[i], rtol=1e-4, atol=1e-5)

    def burst(self, i, requests=4):
        """Sends so many requests at once; a load from the host takes 0.2 s, so that they all arrive while it is under way."""
        wrong = []

        def one():
            try:
                self.ask(i)
            except BaseException as error:  # raised again by the thread that waits
                wrong.append(error)
        threads = [threading.Thread(target=one) for _ in range(requests)]
        for thread in threads:
            thread.start()
        return threads, wrong

    def end(self, burst):
        threads, wrong = burst
        for thread in threads:
            thread.join()
        self.assertFalse(wrong)

    def events(self, kind):
        return re.findall(rf"(?:info|debug) {kind}: (.*)", self.daemon.log.read_text())

    def broadcasts(self):
        return [swap for swap in self.events("swap") if "as it came" in swap]

    def test_a_burst_takes_its_model_from_the_host_once(self):
        self.serve(broadcast="burst")
        turn = 0
        while len(self.broadcasts()) < 4:
            self.assertLess(turn, 60, "bursts lead to broadcasts")
            self.end(self.burst(turn % MODELS))
            turn += 1
        self.assertRegex(self.broadcasts()[0], r"GPU [01]: 'dense-\d' from GPU [01], as it came, 4 MiB in ")
        self.assertFalse(self.events("swap-failed"))

    def test_in_mapped_blocks_too(self):
        self.serve(broadcast="burst", addresses="mapped")
        turn = 0
        while len(self.broadcasts()) < 2:
            self.assertLess(turn, 60, "bursts lead to broadcasts")
            self.end(self.burst(turn % MODELS))
            turn += 1

    def test_without_the_flag_there_are_none(self):
        self.serve()
        for turn in range(4):
            self.end(self.burst(turn % MODELS))
        self.assertFalse(self.broadcasts())

    def test_a_worker_that_dies_in_the_middle_costs_no_request(self):
        self.serve(broadcast="burst")
        for turn in range(6):
            swaps = len(self.events("swap"))
            burst = self.burst(turn % MODELS)
            if turn % 2 == 0:
                os.kill(self.daemon.workers()[turn // 2 % 2], signal.SIGKILL)
            self.end(burst)
            eventually(lambda: len(self.daemon.workers()) == 2, "both GPUs have a worker again")
            self.assertGreaterEqual(len(self.events("swap")), swaps)
        for i in range(MODELS):
            self.ask(i)


if __name__ == "__main__":
    main()
