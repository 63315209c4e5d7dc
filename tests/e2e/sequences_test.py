#!/usr/bin/python3
"""Many states of one function: each sequence of requests goes on from what its own last request left, whatever dies, and
leaves nothing when it has ended."""
import re

import numpy as np

from harness import E2eTest, eventually, main
from harness.client import infer_body
from harness.networks import accumulate, dense

X = np.zeros((1, 256), np.float32)
X[0, 0] = 1
QUERY = "?state=s%3Dt"
NUMBERS = np.arange(1, 1025)


class Sequences(E2eTest):
    def start_one(self, gpu_memory="4MiB", **options):
        daemon = self.start("one", "all", gpu_memory=gpu_memory, **options).wait_serving()
        self.http = daemon.http
        self.states = daemon.directory / "data" / "states"
        return daemon

    def deploy(self):
        self.counts = {}
        self.http.deploy("sum", accumulate(), QUERY).good()

    def add(self, sequence, times=1, **flags):
        """Calls the function for one sequence; its answer is twice the sequence's own sum."""
        for _ in range(times):
            parameters = {"sequence_id": sequence, **{f"sequence_{flag}": True for flag in flags}}
            outputs = self.http.infer("sum", {"x": X}, parameters)
            self.counts[sequence] = 1 if "start" in flags else self.counts[sequence] + 1
            np.testing.assert_array_equal(outputs["y"], 2 * self.counts[sequence] * NUMBERS)
        if "end" in flags:
            del self.counts[sequence]

    def refused(self, sequence, code, part, **flags):
        parameters = {"sequence_id": sequence, **{f"sequence_{flag}": True for flag in flags}}
        answer = self.http.ask("sum", {"x": X}, parameters)
        self.assertEqual(answer.code, code, answer.body)
        self.assertIn(part, answer.error)

    def files(self):
        return sorted(path.name for path in self.states.glob("*"))

    def sequences_on_disk(self):
        return sorted(re.search("#(.*)[.]state", name)[1] for name in self.files() if "#" in name)

    def gone(self, *left):
        eventually(lambda: self.sequences_on_disk() == list(left), f"the disk has {left} alone")

    def metric(self, daemon, name):
        metrics = daemon.operations.get("/metrics").body.decode()
        found = re.search(rf"^{name}{{[^}}]*}} (\S+)$", metrics, re.M)
        return float(found[1]) if found else None

    def test_two_chats_interleaved(self):
        daemon = self.start_one()
        self.deploy()
        self.add("left", start=True)
        self.add(7, start=True)
        for _ in range(3):
            self.add("left", 2)
            self.add(7)
        outputs = self.http.infer("sum", {"x": X})
        np.testing.assert_array_equal(outputs["y"], 2 * NUMBERS)  # the function's own state is another one
        self.assertEqual(self.sequences_on_disk(), ["7", "left"])
        eventually(lambda: self.metric(daemon, "troupe_sequences") == 2, "the metrics count two")
        self.assertEqual(self.http.function("sum")["sequences"], "2")
        self.add("left", start=True)
        self.add("left", end=True)
        self.refused("left", 400, "there is no sequence 'left'")
        self.add(7, end=True)
        self.gone()
        self.refused("never", 400, "sequence_start")
        self.http.remove("sum").good()
        eventually(lambda: self.files() == [], "nothing is left of a function that was removed")

    def test_the_header_and_what_is_refused(self):
        self.start_one()
        self.deploy()
        body = infer_body({"x": X})

        def ask(header, path="/v2/models/sum/infer"):
            return self.http.call("POST", path, body, {"Troupe-Sequence": header})
        for header, code in (("a; start", 200), ("a", 200), ("a; end", 200), ("a", 400), ("a b", 400),
                             ("a; begin", 400), ("x" * 65 + "; start", 400), ("../a; start", 400)):
            self.assertEqual(ask(header).code, code, header)
        self.http.deploy("dense", dense(1)[0]).good()
        answer = ask("a; start", "/v2/models/dense/infer")
        self.assertEqual(answer.code, 501)
        self.assertIn("keeps nothing from one request to the next", answer.error)
        self.gone()

    def test_more_than_the_gpu_and_the_memory_hold(self):
        """The GPU has room for some 20 states of 8 KiB beside the model, and the memory for 256 images of 4 KiB."""
        for write_back in ("run", "evict"):
            with self.subTest(write_back):
                daemon = self.start_one(gpu_memory="1200KiB", state_memory="1MiB", state_write_back=write_back)
                self.deploy()
                names = [f"s{i}" for i in range(300)]
                for name in names:
                    self.add(name, start=True)
                for name in names:
                    self.add(name)
                eventually(lambda: self.metric(daemon, "troupe_sequences") == 300, "the metrics count all")
                self.assertLessEqual(self.metric(daemon, "troupe_sequences_in_memory"), 256)
                for name in names:
                    self.add(name, end=True)
                self.gone()
                daemon.terminate()

    def test_its_worker_and_its_daemon_are_killed(self):
        daemon = self.start_one(gpus=2)
        self.deploy()
        self.add("left", 1, start=True)
        self.add("right", 1, start=True)
        for _ in range(2):
            daemon.kill_workers()
            self.add("left")
            self.add("right")
        daemon.kill()
        daemon = self.start_one(gpus=2)
        eventually(lambda: self.http.get("/v2/models/sum/ready").code == 200, "the function is ready")
        self.refused("other", 400, "there is no sequence")
        self.add("left")
        self.add("right", end=True)
        self.gone("left")
        daemon.kill()
        (path,) = self.states.glob("*#left.state")
        path.write_bytes(path.read_bytes()[:-1] + b"x")
        self.start_one(gpus=2)
        eventually(lambda: self.http.get("/v2/models/sum/ready").code == 200, "the function is ready")
        self.refused("left", 400, "its state cannot be read")
        self.add("left", start=True)

    def test_a_node_that_is_restarted_beside_its_living_worker(self):
        for write_back in ("run", "evict"):
            with self.subTest(write_back):
                options = {"gpu_memory": "4MiB", "state_write_back": write_back}
                front, (node,) = self.start_cluster(1, **options)
                self.http = front.http
                self.deploy()
                self.add("left", start=True)
                self.add("right", start=True)
                self.add("left", 3)
                worker = node.workers()
                node.kill()
                node = self.start("node-0", "node", manager=front.address("manager"), **options)
                eventually(lambda: self.http.ask("sum", {"x": X}).code == 200, "the node serves again")
                self.assertEqual(node.workers(), worker)
                self.add("right")
                self.add("left")
                self.add("left", end=True)
                self.add("right", end=True)
                self.states = node.directory / "data" / "states"
                self.gone()
                node.terminate()
                front.terminate()

    def test_limits(self):
        self.start_one(function_sequences=2, sequence_idle="1s")
        self.deploy()
        self.add("a", start=True)
        self.add("b", start=True)
        answer = self.http.ask("sum", {"x": X}, {"sequence_id": "c", "sequence_start": True})
        if answer.code != 200:  # else the others have been idle for a second
            self.assertEqual(answer.code, 503)
            self.assertIn("option function-sequences", answer.error)
        self.gone()
        self.refused("a", 400, "unused for 1 s (option sequence-idle)")


if __name__ == "__main__":
    main()
