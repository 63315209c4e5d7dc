#!/usr/bin/python3
"""Clients whose tensors lie in shared memory (Triton's system shared memory extension): numpy arrays of 16 MiB in /dev/shm
go in and come out without a byte of them in a request or an answer, while workers, clients and the gateway are killed."""
import json
import multiprocessing.shared_memory
import os
import re
import subprocess
import sys
import threading
import unittest

import numpy as np

from harness import E2eTest, Load, eventually, main
from harness.networks import scale

SHAPE = (4096, 1024)  # 16 MiB of FP32
OTHER_USER = 4711

# A client of its own process: it makes an object, registers it, and asks for ever. A line for each answer.
CLIENT = """
import json, mmap, os, sys, urllib.request
url, name, size = sys.argv[1], sys.argv[2], 16 << 20
with open(f"/dev/shm/{name}", "w+b") as file:
    file.truncate(2 * size)
    memory = mmap.mmap(file.fileno(), 2 * size)
memory[:4] = b"\\0\\0\\x80\\x3f"
def post(path, value):
    with urllib.request.urlopen(urllib.request.Request(url + path, json.dumps(value).encode()), timeout=60) as answer:
        return answer.read()
post(f"/v2/systemsharedmemory/region/{name}/register", {"key": name, "offset": 0, "byte_size": 2 * size})
place = lambda offset: {"shared_memory_region": name, "shared_memory_offset": offset, "shared_memory_byte_size": size}
body = {"inputs": [{"name": "x", "datatype": "FP32", "shape": [4096, 1024], "parameters": place(0)}],
        "outputs": [{"name": "y", "parameters": place(size)}]}
while True:
    post("/v2/models/double/infer", body)
    print(memory[size:size + 4].hex(), flush=True)
"""


class Shared:
    """A shared memory object with two arrays, x and y, which a client registers as one region."""

    def __init__(self, http, name, shape=SHAPE):
        self.http, self.name, self.shape = http, name, shape
        self.size = int(np.prod(shape)) * 4
        self.memory = multiprocessing.shared_memory.SharedMemory(create=True, size=2 * self.size)
        self.x, self.y = (np.ndarray(shape, np.float32, self.memory.buf, offset) for offset in (0, self.size))

    def register(self):
        return self.http.post(f"/v2/systemsharedmemory/region/{self.name}/register",
                              {"key": "/" + self.memory.name.lstrip("/"), "offset": 0, "byte_size": 2 * self.size})

    def place(self, offset):
        return {"shared_memory_region": self.name, "shared_memory_offset": offset, "shared_memory_byte_size": self.size}

    def ask(self, function="double"):
        return self.http.post(f"/v2/models/{function}/infer", {
            "inputs": [{"name": "x", "datatype": "FP32", "shape": list(self.shape), "parameters": self.place(0)}],
            "outputs": [{"name": "y", "parameters": self.place(self.size)}]})

    def close(self):
        self.x = self.y = None
        self.memory.close()
        self.memory.unlink()


def random(shape=SHAPE):
    return np.random.default_rng(7).standard_normal(shape, dtype=np.float32)


class SharedMemory(E2eTest):
    def setUp(self):
        super().setUp()
        self.daemon = self.start_one("one")
        self.http = self.daemon.http
        self.http.deploy("double", scale(2, SHAPE[1])).good()

    def start_one(self, directory, switches=(), **options):
        return self.start(directory, "all", switches, gpu_memory="128MiB", arena="128MiB", **options).wait_serving()

    def shared(self, name="r", http=None):
        shared = Shared(http or self.http, name)
        self.addCleanup(shared.close)
        return shared

    def copied(self, daemon=None):
        """(bytes in, bytes out, regions) by the gateway's page of metrics."""
        page = (daemon or self.daemon).http.get("/metrics").body.decode()
        figure = lambda name: float(re.search(rf"^{re.escape(name)} (\S+)$", page, re.MULTILINE).group(1))
        return (figure('troupe_shared_memory_copied_bytes_total{direction="in"}'),
                figure('troupe_shared_memory_copied_bytes_total{direction="out"}'), figure("troupe_shared_memory_regions"))

    def round_trip(self, shared, daemon=None):
        shared.x[:], shared.y[:] = random(), 0
        before = self.copied(daemon)
        answer = shared.ask().good()
        self.assertEqual(answer.json["outputs"], [{"name": "y", "datatype": "FP32", "shape": list(SHAPE),
                                                   "parameters": shared.place(shared.size)}])
        np.testing.assert_array_equal(shared.y, 2 * shared.x)
        np.testing.assert_array_equal(shared.x, random())
        after = self.copied(daemon)
        self.assertEqual([now - then for now, then in zip(after[:2], before[:2])], [shared.size, shared.size],
                         "each byte was copied once each way")

    def test_a_tensor_goes_in_and_comes_out(self):
        self.assertIn("system_shared_memory", self.http.get("/v2").json["extensions"])
        shared = self.shared()
        self.assertEqual(shared.ask().code, 404)
        shared.register().good()
        self.assertEqual(self.http.get("/v2/systemsharedmemory/region/r/status").json[0]["byte_size"], 2 * shared.size)
        for _ in range(3):
            self.round_trip(shared)
        self.http.post("/v2/systemsharedmemory/region/r/unregister").good()
        self.assertEqual(shared.ask().code, 404)
        self.assertEqual(self.copied()[2], 0)

    def test_gateway_and_node_in_processes_of_their_own(self):
        front, _ = self.start_cluster(1, gpu_memory="128MiB", arena="128MiB")
        front.http.deploy("double", scale(2, SHAPE[1])).good()
        eventually(lambda: front.http.get("/v2/models/double/ready").code == 200, "the function is ready")
        shared = self.shared(http=front.http)
        shared.register().good()
        # Of the front's arena of 32 MiB, inputs in shared memory have three quarters at most, and a client two thirds of that.
        self.round_trip(shared, front)

    def test_workers_are_killed_under_load(self):
        """A request that lost its worker runs again, on the bytes that were copied."""
        shared = self.shared()
        shared.x[:] = random()
        shared.register().good()
        expected = 2 * random()

        def ask():
            shared.y[:] = 0
            answer = shared.ask()
            if answer.code == 503:  # three workers were killed under one request
                return
            answer.good()
            np.testing.assert_array_equal(shared.y, expected)

        load = Load(ask, threads=1)
        load.wait(3)
        for _ in range(3):
            self.daemon.kill_workers()
            load.wait(3)
        load.stop()
        self.assertIsNone(self.daemon.process.poll())

    def test_a_client_is_killed(self):
        name = f"troupe-e2e-{os.getpid()}"
        self.addCleanup(lambda: os.path.exists(f"/dev/shm/{name}") and os.unlink(f"/dev/shm/{name}"))
        client = subprocess.Popen([sys.executable, "-c", CLIENT, f"http://{self.http.host}:{self.http.port}", name],
                                  stdout=subprocess.PIPE, text=True)
        self.addCleanup(client.stdout.close)
        for _ in range(3):
            self.assertEqual(client.stdout.readline(), "00000040\n")  # 2.0
        client.kill()
        client.wait()
        # Its region stays until it is unregistered; the next client of the user does that, as Triton's examples begin.
        self.assertEqual([region["name"] for region in self.http.get("/v2/systemsharedmemory/status").json], [name])
        self.http.post("/v2/systemsharedmemory/unregister").good()
        self.assertEqual(self.http.get("/v2/systemsharedmemory/status").json, [])
        shared = self.shared()
        shared.register().good()
        self.round_trip(shared)

    def test_the_gateway_is_killed(self):
        shared = self.shared()
        shared.register().good()
        self.round_trip(shared)
        self.daemon.kill_node()
        self.daemon = self.start_one("one")
        shared.http = self.http = self.daemon.http
        eventually(lambda: self.http.get("/v2/models/double/ready").code == 200, "the function is ready")
        self.assertEqual(shared.ask().code, 404, "a gateway that starts has no regions")
        shared.register().good()
        self.round_trip(shared)

    def test_an_object_that_shrinks_and_grows_meanwhile(self):
        """A mapping of it would end the worker, or the gateway, with SIGBUS."""
        name = f"troupe-e2e-{os.getpid()}"
        with open(f"/dev/shm/{name}", "w+b") as file:
            self.addCleanup(os.unlink, f"/dev/shm/{name}")
            size = int(np.prod(SHAPE)) * 4
            file.truncate(2 * size)
            self.http.post(f"/v2/systemsharedmemory/region/{name}/register",
                           {"key": name, "offset": 0, "byte_size": 2 * size}).good()
            place = lambda offset: {"shared_memory_region": name, "shared_memory_offset": offset,
                                    "shared_memory_byte_size": size}
            body = {"inputs": [{"name": "x", "datatype": "FP32", "shape": list(SHAPE), "parameters": place(0)}],
                    "outputs": [{"name": "y", "parameters": place(size)}]}
            workers, stop = self.daemon.workers(), threading.Event()

            def shrink():
                while not stop.is_set():
                    os.ftruncate(file.fileno(), 0)
                    os.ftruncate(file.fileno(), 2 * size)

            thread = threading.Thread(target=shrink)
            thread.start()
            try:
                answers = [self.http.post("/v2/models/double/infer", body) for _ in range(20)]
            finally:
                stop.set()
                thread.join()
            for answer in answers:
                self.assertIn(answer.code, (200, 400), answer.body)
                if answer.code == 400:
                    self.assertIn("was shrunk since it was registered", answer.error)
            os.ftruncate(file.fileno(), size // 2)
            self.assertEqual(self.http.post("/v2/models/double/infer", body).code, 400)
        self.assertEqual(self.daemon.workers(), workers)
        shared = self.shared()
        shared.register().good()
        self.round_trip(shared)

    def test_beyond_loopback_it_is_an_option(self):
        shared = {}
        for offer in ("loopback", "on"):
            daemon = self.start_one(f"open-{offer}", ["insecure-network"], http="0.0.0.0:0", http_shared_memory=offer)
            port = daemon.address("gateway").rpartition(":")[2]
            daemon.http.deploy("double", scale(2, SHAPE[1])).good()
            shared[offer] = self.shared(http=type(daemon.http)(f"127.0.0.1:{port}"))
            if offer == "loopback":
                answer = shared[offer].register()
                self.assertEqual(answer.code, 501)
                self.assertIn("http-shared-memory", answer.error)
                self.assertNotIn("system_shared_memory", daemon.http.get("/v2").json["extensions"])
            else:
                shared[offer].register().good()
                self.round_trip(shared[offer], daemon)

    @unittest.skipUnless(os.getuid() == 0, "only root has clients of two users")
    def test_another_user(self):
        """Neither reads the other's memory by way of the gateway, though root's gateway may open both objects."""
        roots = self.shared()
        roots.register().good()
        other = f"troupe-e2e-other-{os.getpid()}"
        self.addCleanup(lambda: os.path.exists(f"/dev/shm/{other}") and os.unlink(f"/dev/shm/{other}"))

        def as_other_user():
            with open(f"/dev/shm/{other}", "w+b") as file:
                file.truncate(4096)
            register = lambda name, key: self.http.post(f"/v2/systemsharedmemory/region/{name}/register",
                                                        {"key": key, "offset": 0, "byte_size": 4096}).code
            return [self.http.get("/v2/systemsharedmemory/status").json, roots.ask().code,
                    register("stolen", roots.memory.name), register("own", other),
                    self.http.post("/v2/systemsharedmemory/unregister").code]

        receive, send = os.pipe()
        child = os.fork()
        if child == 0:
            try:
                os.setuid(OTHER_USER)
                os.write(send, json.dumps(as_other_user()).encode())
            finally:
                os._exit(0)
        os.close(send)
        with open(receive, "rb") as pipe:
            said = pipe.read()
        os.waitpid(child, 0)
        self.assertEqual(json.loads(said), [[], 404, 403, 200, 200])
        self.round_trip(roots)  # the other user's unregistering left it alone
        answer = self.http.post("/v2/systemsharedmemory/region/theirs/register",
                                {"key": other, "offset": 0, "byte_size": 4096})
        self.assertEqual(answer.code, 403, answer.body)


if __name__ == "__main__":
    main()
