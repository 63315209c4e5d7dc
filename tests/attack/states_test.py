#!/usr/bin/python3
"""Two functions with state of one model, asked at the same time: no run fails, and each answer counts once."""
import os
import signal
import threading
import time

import numpy as np

from harness import E2eTest, main
from harness.networks import accumulate

X = np.zeros((1, 256), np.float32)
X[0, 0] = 1
QUERY = "?state=s%3Dt"
SECONDS = 3


class States(E2eTest):
    def start_with_two(self, gpus):
        daemon = self.start("one", "all", gpus=gpus, gpu_memory="8MiB").wait_serving()
        for name in ("left", "right"):
            daemon.http.deploy(name, accumulate(), QUERY).good()
        return daemon

    def ask(self, http, name, until, tries, counts, failures):
        """Each answer is twice the number of the function's runs, as its first element."""
        while time.monotonic() < until:
            try:
                counts.append(round(float(http.infer(name, {"x": X}, tries=tries)["y"][0]) / 2))
            except Exception as error:  # every failure is told
                failures.append(f"{name}: {error}")

    def load(self, daemon, meanwhile=None, tries=1):
        until = time.monotonic() + SECONDS
        counts, failures = {"left": [], "right": []}, []
        threads = [threading.Thread(target=self.ask, args=(daemon.http, name, until, tries, counts[name], failures))
                   for name in counts]
        for thread in threads:
            thread.start()
        if meanwhile:
            meanwhile()
        for thread in threads:
            thread.join()
        self.assertEqual(failures, [])
        for name, seen in counts.items():
            self.assertEqual(seen, list(range(1, len(seen) + 1)), name)
        few, many = sorted(len(seen) for seen in counts.values())
        self.assertGreater(few, 10)
        self.assertGreater(few, many / 4, "one function starves beside the other")

    def test_on_one_gpu(self):
        self.load(self.start_with_two(1))

    def test_on_two_gpus(self):
        self.load(self.start_with_two(2))

    def test_their_workers_are_killed(self):
        daemon = self.start_with_two(2)

        def kill():
            for _ in range(2):
                time.sleep(SECONDS / 4)
                for pid in daemon.workers().values():
                    os.kill(pid, signal.SIGKILL)
        self.load(daemon, kill, tries=4)


if __name__ == "__main__":
    main()
