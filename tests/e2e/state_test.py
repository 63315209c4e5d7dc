#!/usr/bin/python3
"""State that a function declares stays on the GPU from run to run, and outlives evictions, GPUs, workers and daemons."""
import re

import numpy as np

from harness import E2eTest, HttpError, eventually, main
from harness.networks import accumulate, dense

X = np.zeros((1, 256), np.float32)
X[0, 0] = 1
QUERY = "?state=s%3Dt"


class State(E2eTest):
    def start_one(self, gpu_memory="4MiB", **options):
        daemon = self.start("one", "all", gpu_memory=gpu_memory, **options).wait_serving()
        self.http = daemon.http
        return daemon

    def deploy(self):
        self.count = 0
        self.http.deploy("sum", accumulate(), QUERY).good()
        for i in range(4):
            self.http.deploy(f"dense-{i}", dense(1, seed=i)[0]).good()

    def add(self, times=1):
        """Calls the function once more; its answer is twice the sum, without the state itself."""
        for _ in range(times):
            outputs = self.http.infer("sum", {"x": X})
            self.count += 1
            self.assertEqual(list(outputs), ["y"])
            np.testing.assert_array_equal(outputs["y"], 2 * self.count * np.arange(1, 1025))

    def crowd(self):
        for i in range(4):
            self.http.infer(f"dense-{i}", {"x": X})

    def resident(self):
        return set(self.http.function("sum").get("resident_on", []))

    def test_what_callers_see(self):
        self.start_one()
        self.deploy()
        described = self.http.get("/v2/models/sum").good().json
        self.assertEqual([tensor["name"] for tensor in described["inputs"]], ["x"])
        self.assertEqual([tensor["name"] for tensor in described["outputs"]], ["y"])
        self.add(3)
        answer = self.http.ask("sum", {"x": X, "s": np.zeros((1, 1024), np.float32)})
        self.assertEqual(answer.code, 400)
        self.add()
        for query, part in (("?state=s%3Dy2", "has none such; it has: y, t"), ("?state=x%3Dt", "same concrete shape"),
                            ("?state=s", "list of INPUT=OUTPUT")):
            refused = self.http.deploy("other", accumulate(), query)
            self.assertEqual(refused.code, 400)
            self.assertIn(part, refused.error)

    def test_evicted_and_called_again(self):
        self.start_one()
        self.deploy()
        self.add(2)
        for _ in range(3):
            self.crowd()
            eventually(lambda: (self.crowd(), not self.resident())[1], "the model was evicted")
            self.add(2)

    def test_moved_to_another_gpu(self):
        self.start_one(gpus=2, gpu_memory="3MiB", gpu="random")
        self.deploy()
        seen = set()

        def moved():
            eventually(lambda: (self.crowd(), not self.resident())[1], "the model was evicted")
            self.add()
            seen.update(self.resident())
            return len(seen) > 1
        eventually(moved, "the model has been on both GPUs")
        self.add(3)

    def test_versions_and_new_deployments_begin_anew(self):
        self.start_one()
        self.deploy()
        self.add(3)
        self.http.remove("sum").good()
        eventually(lambda: self.http.get("/v2/models/sum").code == 404, "the function is removed")
        self.http.deploy("sum", accumulate(), QUERY).good()
        self.count = 0
        self.add(2)
        self.http.deploy("sum", accumulate(), QUERY).good()  # version 2
        self.count = 0
        self.add(2)

    def test_its_worker_is_killed(self):
        daemon = self.start_one(gpus=2)
        self.deploy()
        self.add(2)
        for _ in range(3):
            daemon.kill_workers()
            self.add(2)

    def test_its_daemon_is_restarted(self):
        daemon = self.start_one()
        self.deploy()
        self.add(3)
        self.assertEqual(daemon.terminate(), 0)
        daemon = self.start_one()
        eventually(lambda: self.http.get("/v2/models/sum/ready").code == 200, "the function is ready")
        self.add(2)
        daemon.kill()
        eventually(lambda: not daemon.workers(), "the workers end without their daemon")
        daemon = self.start_one()
        eventually(lambda: self.http.get("/v2/models/sum/ready").code == 200, "the function is ready")
        self.add(2)
        daemon.kill()
        (path,) = (daemon.directory / "data" / "states").glob("*.state")
        path.write_bytes(path.read_bytes()[:-1] + b"x")
        daemon = self.start_one()
        eventually(lambda: self.http.get("/v2/models/sum/ready").code == 200, "the function is ready")
        with self.assertRaises(HttpError) as refused:
            self.add()
        self.assertIn("its state cannot be read", refused.exception.answer.error)

    def test_a_node_that_is_restarted_beside_its_living_worker(self):
        front, (node,) = self.start_cluster(1, gpu_memory="4MiB")
        self.http = front.http
        self.deploy()
        self.add(3)
        worker = node.workers()
        node.kill()
        node = self.start("node-0", "node", manager=front.address("manager"), gpu_memory="4MiB")
        eventually(lambda: self.http.ask("dense-0", {"x": X}).code == 200, "the node serves again")
        self.assertEqual(node.workers(), worker)
        self.add(3)

    def test_functions_that_were_removed_while_the_node_was_away_leave_its_worker(self):
        front, (node,) = self.start_cluster(1, gpu_memory="4MiB")
        self.http = front.http
        self.deploy()
        self.crowd()
        worker = node.workers()
        node.kill()
        for name in ("sum", "dense-0", "dense-1", "dense-2"):
            self.http.remove(name).good()
        node = self.start("node-0", "node", manager=front.address("manager"), gpu_memory="4MiB")

        def free_bytes():
            metrics = node.operations.get("/metrics").body.decode()
            found = re.search(r"^troupe_gpu_free_bytes{[^}]*} (\S+)$", metrics, re.M)
            return float(found[1]) if found else 0

        eventually(lambda: free_bytes() > 2.5 * 2**20, "all but one have left")
        self.assertEqual(node.workers(), worker)
        self.http.infer("dense-3", {"x": X})

    def test_what_only_the_living_worker_has_is_found_by_the_next_daemon(self):
        options = {"gpu_memory": "4MiB", "state_write_back": "evict"}
        front, (node,) = self.start_cluster(1, **options)
        self.http = front.http
        self.deploy()
        self.add(3)
        node.kill()
        self.start("node-0", "node", manager=front.address("manager"), **options)
        eventually(lambda: self.http.ask("dense-0", {"x": X}).code == 200, "the node serves again")
        self.add(3)


if __name__ == "__main__":
    main()
