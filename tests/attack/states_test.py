#!/usr/bin/python3
"""Two functions with state of one model, asked at the same time, also by runs of a workflow: no run fails, and each
answer counts once."""
import threading

import numpy as np

from harness import E2eTest, eventually, main
from harness.networks import accumulate

X = np.zeros((1, 256), np.float32)
X[0, 0] = 1
QUERY = "?state=s%3Dt"
# Answers that each function gives before a test is over, however long they take on this machine.
ENOUGH = 60
# Each run advances both states by one.
PAIR = """
name: pair
inputs:
  x: {type: FP32, shape: [1, 256]}
steps:
  - {name: first, function: left, inputs: {x: x}}
  - {name: second, function: right, inputs: {x: x}}
outputs: {l: first.y, r: second.y}
"""


class States(E2eTest):
    def start_with_two(self, gpus):
        daemon = self.start("one", "all", gpus=gpus, gpu_memory="8MiB").wait_serving()
        for name in ("left", "right"):
            daemon.http.deploy(name, accumulate(), QUERY).good()
        return daemon

    def ask(self, http, name, over, tries, counts, failures):
        """Each answer is twice the number of the function's runs, as its first element."""
        while not over.is_set():
            try:
                counts.append(round(float(http.infer(name, {"x": X}, tries=tries)["y"][0]) / 2))
            except Exception as error:  # every failure is reported
                failures.append(f"{name}: {error}")
                over.set()

    def load(self, daemon, meanwhile=None, tries=1):
        """`meanwhile`, if there is one, is called each time that the slower function has given ENOUGH / 4 answers more."""
        over = threading.Event()
        counts, failures = {"left": [], "right": []}, []
        threads = [threading.Thread(target=self.ask, args=(daemon.http, name, over, tries, counts[name], failures))
                   for name in counts]
        for thread in threads:
            thread.start()
        try:
            for quarter in range(1, 5):
                eventually(lambda: over.is_set() or min(map(len, counts.values())) >= quarter * ENOUGH / 4,
                           f"both functions have given {quarter * ENOUGH // 4} answers; so many have they: "
                           f"{ {name: len(seen) for name, seen in counts.items()} }")
                if meanwhile and quarter < 4:
                    meanwhile()
        finally:
            over.set()
            for thread in threads:
                thread.join()
        self.assertEqual(failures, [])
        for name, seen in counts.items():
            self.assertEqual(seen, list(range(1, len(seen) + 1)), name)
        few, many = sorted(len(seen) for seen in counts.values())
        self.assertGreater(few, many / 10, "one function starves beside the other")

    def test_on_one_gpu(self):
        self.load(self.start_with_two(1))

    def test_on_two_gpus(self):
        self.load(self.start_with_two(2))

    def test_their_workers_are_killed(self):
        daemon = self.start_with_two(2)
        self.load(daemon, daemon.kill_workers, tries=4)

    def run_pairs(self, http, over, left, right, failures):
        """Runs of the workflow, each asked for once: only the run itself may try a step again."""
        while not over.is_set():
            try:
                outputs = http.infer("pair", {"x": X}, tries=1)
                left.append(round(float(outputs["l"][0]) / 2))
                right.append(round(float(outputs["r"][0]) / 2))
            except Exception as error:  # every failure is reported
                failures.append(f"pair: {error}")

    def test_runs_of_a_workflow_outlive_their_workers(self):
        daemon = self.start_with_two(2)
        daemon.http.call("POST", "/v2/troupe/workflows", PAIR).good()
        eventually(lambda: daemon.http.get("/v2/models/pair").code == 200, "the gateway knows the workflow")
        over = threading.Event()
        left, right, failures = [], [], []
        threads = [threading.Thread(target=self.run_pairs, args=(daemon.http, over, left, right, failures))
                   for _ in range(3)]
        for thread in threads:
            thread.start()
        try:
            for kill in range(1, 7):
                eventually(lambda: failures or len(left) >= kill * 3, f"{kill * 3} runs have ended")
                daemon.kill_workers()
        finally:
            over.set()
            for thread in threads:
                thread.join()
        self.assertEqual(failures, [])
        for counts in (left, right):
            self.assertEqual(sorted(counts), list(range(1, len(counts) + 1)), "a run was lost or counted twice")


if __name__ == "__main__":
    main()
