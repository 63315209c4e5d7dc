#!/usr/bin/python3
"""More models than the host region holds: the least used ones are on disk only, come back with
a request, and compute the right results."""
import os
import pathlib
import random
import re
import signal
import threading

import numpy as np

from harness import E2eTest, HttpError, Load, eventually, main
from harness.networks import dense, digits

MODELS = 8
X = np.zeros((1, 256), np.float32)
X[0, 0] = 1


class HostRegion(E2eTest):
    def deploy(self, http):
        """`MODELS` networks of 1 MiB each, and the digits."""
        self.http, self.rows = http, []
        for i in range(MODELS):
            onnx, weight = dense(1, seed=i)
            http.deploy(f"dense-{i}", onnx).good()
            self.rows.append(weight[0])
        onnx, self.images, self.labels = digits()
        http.deploy("digits", onnx).good()

    def ask(self, i):
        found = np.array(self.http.infer(f"dense-{i}", {"x": X})["y"])
        np.testing.assert_allclose(found, self.rows[i], rtol=1e-4, atol=1e-5)

    def classify(self):
        right = 0
        for i in range(0, 360, 36):
            rows = np.array(self.http.infer("digits", {"image": self.images[i:i + 36]})["probabilities"]).reshape(36, 10)
            right += int((rows.argmax(1) == self.labels[i:i + 36]).sum())
        self.assertGreaterEqual(right / 360, 0.97)

    def figure(self, daemon, name):
        found = re.search(rf"^{name}(?:{{[^}}]*}})? (\S+)$", daemon.operations.get("/metrics").body.decode(), re.M)
        return float(found.group(1)) if found else None

    def test_all_are_served_from_a_region_of_three_of_them(self):
        daemon = self.start("one", "all", gpus=2, gpu_memory="4MiB", host_region="4MiB").wait_serving(gpus=2)
        self.deploy(daemon.http)
        chance, guard = random.Random(1), threading.Lock()

        def anything():
            with guard:
                i = chance.randrange(MODELS)
            self.ask(i)
        load = Load(anything, threads=6)
        load.wait(40)
        os.kill(daemon.workers()[0], signal.SIGKILL)
        load.wait(40)
        self.classify()
        load.stop()
        for i in range(MODELS):
            self.ask(i)
        eventually(lambda: self.figure(daemon, "troupe_host_region_used_bytes") is not None, "the region is measured")
        self.assertLessEqual(self.figure(daemon, "troupe_host_region_used_bytes"),
                             self.figure(daemon, "troupe_host_region_bytes"))
        self.assertIn("model-loaded", daemon.log.read_text())

    def test_damage_on_disk_is_set_aside_and_mended_from_the_manager(self):
        front, (node,) = self.start_cluster(nodes=1, gpu_memory="4MiB", host_region="4MiB")
        self.deploy(front.http)
        data = pathlib.Path(node.settings["data"])
        objects = [path for path in data.rglob("objects/*/*") if path.stat().st_size >= 1 << 20]
        self.assertGreaterEqual(len(objects), MODELS)
        for path in objects:
            path.chmod(0o600)
            with path.open("r+b") as file:
                file.seek(4096)
                file.write(b"\x00\x01\x02\x03" * 64)
        for i in range(MODELS):
            self.ask(i)
        self.classify()
        self.assertTrue(any(data.rglob("quarantine/*")), "what was damaged is kept for an operator")
        self.assertIn("model-damaged", node.log.read_text())

    def test_requests_that_expire_during_their_swap_leave_everything_usable(self):
        daemon = self.start("one", "all", gpus=2, gpu_memory="3MiB", link_bandwidth="100MB").wait_serving(gpus=2)
        self.deploy(daemon.http)
        chance = random.Random(2)

        def hurried():
            try:
                self.http.infer(f"dense-{chance.randrange(MODELS)}", {"x": X},
                                {"timeout": chance.choice([2000, 5000, 10000, 20000])}, tries=1)
            except HttpError as error:
                if error.code != 503:
                    raise
        load = Load(hurried, threads=6)
        load.wait(200)
        load.stop()
        for i in range(MODELS):
            self.ask(i)


if __name__ == "__main__":
    main()
