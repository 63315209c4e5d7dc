#!/usr/bin/python3
"""Requests of one function that one run answers together: each answer is its own, and every request is counted once."""
import itertools
import os
import signal
import threading

import numpy as np

from harness import E2eTest, Load, eventually, main
from harness.client import infer_binary
from harness.networks import digits, rolls

LAYERS, SHIFT = 6, 3  # 24 MiB of weights that a run reads, however many rows it has
CLIENTS = 12


class Batching(E2eTest):
    def setUp(self):
        super().setUp()
        self.daemon = self.start("one", "all", batching="slack").wait_serving()
        self.http = self.daemon.http
        onnx = rolls(LAYERS, SHIFT)
        self.http.deploy("rolls", onnx, "?deadline_ms=10000").good()
        self.turn, self.lock = itertools.count(), threading.Lock()

    def next(self):
        with self.lock:
            return next(self.turn)

    def ask_rolls(self):
        x = np.random.default_rng(self.next()).standard_normal((1, 1024), dtype=np.float32)
        shape, data = infer_binary(self.http, "rolls", {"x": x})["y"]
        assert shape == [1, 1024], shape
        np.testing.assert_array_equal(np.frombuffer(data, np.float32), np.roll(x[0], LAYERS * SHIFT))

    def statistics(self, name):
        return self.http.get(f"/v2/models/{name}/stats").good().json["model_stats"][0]

    def sizes(self, name="rolls"):
        """{requests of a run: runs} of the function."""
        return {entry["batch_size"]: entry["compute_infer"]["count"] for entry in self.statistics(name)["batch_stats"]}

    def joined(self):
        return max(self.sizes(), default=0) >= 2

    def test_each_answer_is_its_own_and_each_request_is_counted(self):
        for _ in range(8):
            self.ask_rolls()
        self.assertEqual(set(self.sizes()), {1})
        load = Load(self.ask_rolls, threads=CLIENTS)
        eventually(self.joined, "one run answered several requests")
        asked = load.stop() + 8
        statistics, sizes = self.statistics("rolls"), self.sizes()
        self.assertEqual(statistics["inference_count"], asked)
        self.assertEqual(sum(size * runs for size, runs in sizes.items()), asked)
        self.assertEqual(statistics["execution_count"], sum(sizes.values()))
        self.assertLess(statistics["execution_count"], asked)
        for entry in statistics["batch_stats"]:
            self.assertGreater(entry["compute_infer"]["ns"], 0)
            self.assertEqual(entry["compute_input"]["count"], entry["compute_output"]["count"])
        eventually(lambda: f"troupe_gateway_batch_size_count {sum(sizes.values())}" in
                   self.daemon.operations.get("/metrics").body.decode(), "the histogram counts all runs")

    def test_a_killed_worker_loses_no_request_of_a_batch(self):
        load = Load(self.ask_rolls, threads=CLIENTS)
        eventually(self.joined, "one run answered several requests")
        os.kill(self.daemon.workers()[0], signal.SIGKILL)
        load.wait(200)
        load.stop()

    def test_digits_are_the_same_together_and_alone(self):
        onnx, images, _ = digits()
        self.http.deploy("digits", onnx, "?deadline_ms=10000").good()

        def ask(i):
            return np.array(self.http.infer("digits", {"image": images[i:i + 1]})["probabilities"])

        alone = [ask(i) for i in range(32)]

        def check():
            i = self.next() % 32
            np.testing.assert_allclose(ask(i), alone[i], rtol=1e-5, atol=1e-6, err_msg=f"image {i}")

        # The large network keeps the GPU busy, so that digits wait for each other.
        others, load = Load(self.ask_rolls, threads=4), Load(check, threads=CLIENTS)
        eventually(lambda: max(self.sizes("digits")) >= 2, "one run answered several images")
        load.stop()
        others.stop()


if __name__ == "__main__":
    main()
