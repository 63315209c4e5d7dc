#!/usr/bin/python3
"""Weights outlive the worker of a virtual GPU: after kill -9 its models are there, whole, and no byte of them is copied again."""
import os
import re
import signal
import struct

import numpy as np

from harness import E2eTest, eventually, main
from harness.networks import dense, rolls, scale
from harness.processes import open_files

MAGIC = b"1wepuort"  # at the begin of the record of weights, behind the device's memory
ALL = 20 << 20  # of dense and rolls; scale has a few bytes more
SLOT = struct.Struct("<IIQQ128s")  # valid, length of the digest, offset, size, digest


class KeptWeights(E2eTest):
    OPTIONS = {}

    def setUp(self):
        super().setUp()
        self.front = self.start("front", "manager,gateway")
        self.start_node()
        self.front.wait_serving(gpus=0)
        self.http = self.front.http
        onnx, self.weight = dense(8)
        self.http.deploy("dense", onnx).good()
        self.http.deploy("rolls", rolls(3, 2)).good()
        self.http.deploy("scale", scale(3)).good()
        self.ask_all()
        eventually(self.all_resident, "all models are on the GPU")
        eventually(lambda: self.swapped() > ALL, "the swaps are counted")

    def start_node(self):
        self.daemon = self.start("node", "node", gpus=1, manager=self.front.address("manager"),
                                 **{"gpu-memory": "128MiB", **self.OPTIONS})
        eventually(self.up, "the node's worker is up")

    def up(self):
        return self.metric("troupe_gpu_up") == 1

    def ask(self, name):
        if name == "dense":
            x = np.zeros((1, self.weight.shape[0]), np.float32)
            x[0, 0] = 1
            self.assertTrue(np.allclose(self.http.infer(name, {"x": x})["y"], self.weight[0], atol=1e-5))
        elif name == "rolls":
            x = np.arange(1024, dtype=np.float32).reshape(1, 1024)
            self.assertEqual(self.http.infer(name, {"x": x})["y"], np.roll(x, 6, axis=1).reshape(-1).tolist())
        else:
            x = np.arange(4, dtype=np.float32).reshape(1, 4)
            self.assertEqual(self.http.infer(name, {"x": x})["y"], (3 * x).reshape(-1).tolist())

    def ask_all(self):
        """Each model answers, and the node's metrics have counted it."""
        served = self.metric("troupe_node_served_total")
        for name in ("dense", "rolls", "scale"):
            self.ask(name)
        eventually(lambda: self.metric("troupe_node_served_total") >= served + 3, "the answers are counted")

    def all_ready(self):
        return all(self.http.get(f"/v2/models/{name}/ready").code == 200 for name in ("dense", "rolls", "scale"))

    def all_resident(self):
        return all(self.http.function(name).get("resident_on") for name in ("dense", "rolls", "scale"))

    def metric(self, name):
        text = self.daemon.operations.get("/metrics").body.decode()
        return sum(float(line.rsplit(" ", 1)[1]) for line in text.splitlines() if re.match(name + r"[ {]", line))

    def swapped(self):
        return self.metric("troupe_node_swap_bytes_total")

    def kill_worker(self):
        """kill -9; returns when the next worker is up."""
        pid = self.daemon.workers()[0]
        before = self.metric("troupe_gpu_restarts_total")
        os.kill(pid, signal.SIGKILL)
        eventually(lambda: self.metric("troupe_gpu_restarts_total") > before and self.up(), f"worker {pid} is replaced")

    def device_memory(self):
        """The file of the GPU's memory, as the daemon keeps it."""
        for descriptor, target in open_files(self.daemon.process.pid).items():
            if target.startswith("/memfd:troupe-gpu0"):
                return open(descriptor, "r+b", buffering=0)
        self.fail("the daemon has no memory of GPU 0")

    def recorded(self, memory):
        """(offset, size) of each model on record."""
        memory.seek(0)
        data = memory.read(os.fstat(memory.fileno()).st_size)
        at = data.rfind(MAGIC)
        self.assertGreater(at, 0, "there is a record of weights")
        slots = (SLOT.unpack_from(data, at + 8 + i * SLOT.size) for i in range(4096))
        return [(offset, size) for valid, _, offset, size, _ in slots if valid]

    def log_has(self, text):
        return text in self.daemon.log.read_text(errors="replace")


class Kept(KeptWeights):
    def test_no_byte_is_copied_again(self):
        before = self.swapped()
        self.kill_worker()
        eventually(self.all_resident, "all models are on the GPU again")
        self.ask_all()
        self.assertEqual(self.swapped(), before)
        self.assertLess(self.metric("troupe_gpu_link_bytes_total"), 1 << 20, "the new worker has copied inputs and outputs only")
        self.assertTrue(self.log_has("weights-kept"))

    def test_killed_again_before_anything_ran(self):
        before = self.swapped()
        for _ in range(3):
            self.kill_worker()
        self.ask_all()
        self.assertEqual(self.swapped(), before)

    def test_requests_that_wait_for_the_next_worker_are_answered(self):
        before = self.swapped()
        os.kill(self.daemon.workers()[0], signal.SIGKILL)
        self.ask_all()
        self.assertEqual(self.swapped(), before)
        self.assertTrue(self.log_has("weights-kept"))

    def test_what_was_spoiled_comes_again(self):
        before = self.swapped()
        with self.device_memory() as memory:
            recorded = self.recorded(memory)
            self.assertEqual(len(recorded), 3)
            offset, size = max(recorded, key=lambda place: place[1])
            memory.seek(offset + size // 2)
            byte = memory.read(1)[0]
            memory.seek(offset + size // 2)
            memory.write(bytes([byte ^ 1]))
        self.kill_worker()
        self.ask_all()
        self.assertEqual(self.swapped(), before + size, "the spoiled model came again, and no other")
        self.assertTrue(self.log_has("weights-dropped"))

    def test_a_record_of_nonsense(self):
        before = self.swapped()
        with self.device_memory() as memory:
            recorded = self.recorded(memory)
            memory.seek(0)
            at = memory.read(os.fstat(memory.fileno()).st_size).rfind(MAGIC)
            memory.seek(at + 8)
            memory.write(os.urandom(4096 * SLOT.size))
        self.kill_worker()
        self.ask_all()
        self.assertEqual(self.swapped(), before + sum(size for _, size in recorded))
        self.assertTrue(self.log_has("weights-dropped"))

    def test_the_daemon_was_started_again_before(self):
        worker = self.daemon.workers()
        self.daemon.kill()
        self.start_node()
        self.assertEqual(self.daemon.workers(), worker, "it has outlived its daemon")
        eventually(self.all_ready, "the node serves again")
        eventually(self.all_resident, "the models are known again")
        self.ask_all()
        before = self.swapped()
        self.kill_worker()
        self.ask_all()
        self.assertEqual(self.swapped(), before)

    def test_without_the_daemon_they_are_lost(self):
        self.daemon.kill_node()
        self.start_node()
        eventually(self.all_ready, "the node serves again")
        self.assertFalse(self.log_has("weights-kept"))
        self.ask_all()
        eventually(lambda: self.swapped() > ALL, "all models came again")


class NotKept(KeptWeights):
    OPTIONS = {"keep-weights": "off"}

    def test_they_come_again(self):
        before = self.swapped()
        self.kill_worker()
        self.ask_all()
        eventually(lambda: self.swapped() > before + ALL, "all models came again")
        self.assertFalse(self.log_has("weights-kept"))


if __name__ == "__main__":
    main()
