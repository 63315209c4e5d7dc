#!/usr/bin/python3
"""Functions that do not share a GPU worker: by tenant, workflow or function, on one GPU whose memory three workers share."""
import os
import pathlib
import re
import signal
import unittest
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from harness import E2eTest, Load, eventually, main
from harness.networks import accumulate, dense, ensemble, scale
from harness.processes import open_files
from harness.shell import Shell

# Workers are not dumpable: their maps and descriptors are for root alone (docs/security.md, Sandboxes).
LOOKS_INSIDE = unittest.skipIf(os.geteuid() != 0, "only root may look into a worker")
X = np.arange(4, dtype=np.float32).reshape(1, 4)


def regions(pid):
    """{memory file: inode} of the host regions that a process maps, and of those of which it has a descriptor."""
    mapped, held = {}, {}
    for line in pathlib.Path(f"/proc/{pid}/maps").read_text().splitlines():
        fields = line.split(maxsplit=5)
        if len(fields) == 6 and fields[5].startswith("/memfd:troupe-host"):
            assert "w" not in fields[1], f"a worker can write a host region: {line}"
            mapped[fields[5].removesuffix(" (deleted)")] = int(fields[4])
    for entry, target in open_files(pid).items():
        if target.startswith("/memfd:troupe-host"):
            held[target.removesuffix(" (deleted)")] = os.stat(entry).st_ino
    return mapped, held


class Isolation(E2eTest):
    def start_isolated(self, mode, **options):
        daemon = self.start("one", "all", isolation=mode, **options).wait_serving()
        self.shell = Shell(daemon.address("manager"), self.directory)
        eventually(lambda: len(self.runtimes("")) == 3, "three warm runtimes")
        return daemon

    def runtimes(self, key=None):
        """[runtime] of GPU 0 that are ready; with `key`, only those that serve that tenant."""
        gpu = self.shell.json("gpu", "show", "one/0")["gpus"][0]
        return [runtime for runtime in gpu.get("runtimes", [])
                if runtime["state"] == "ready" and (key is None or runtime.get("key", "") == key)]

    def served(self):
        return {runtime.get("key", "") for runtime in self.runtimes()} - {""}

    def pid(self, key):
        (runtime,) = eventually(lambda: self.runtimes(key), f"a runtime that serves {key}")
        return int(runtime["pid"])

    def ask(self, factor):
        self.assertEqual(self.http.infer(f"times-{factor}", {"x": X})["y"], (factor * X).reshape(-1).tolist())

    def deploy(self, daemon, factor, query):
        self.http = daemon.http
        self.http.deploy(f"times-{factor}", scale(factor), query).good()

    @LOOKS_INSIDE
    def test_tenants_have_workers_and_memory_of_their_own(self):
        daemon = self.start_isolated("tenant")
        self.deploy(daemon, 2, "?tenant=acme")
        self.deploy(daemon, 3, "?tenant=bolt")
        self.deploy(daemon, 5, "?tenant=acme")
        for factor in (2, 3, 5):
            self.ask(factor)
        self.assertEqual(self.served(), {"tenant/acme", "tenant/bolt"})
        warm = self.pid("")
        acme, bolt = self.pid("tenant/acme"), self.pid("tenant/bolt")
        self.assertEqual(len({acme, bolt, warm}), 3)
        seen = {}
        for name, pid in (("acme", acme), ("bolt", bolt)):
            mapped, held = regions(pid)
            self.assertEqual(set(mapped), {f"/memfd:troupe-host one tenant/{name}"}, "a worker maps the region of another tenant")
            self.assertLessEqual(set(held.items()), set(mapped.items()), "a worker has a descriptor of another region")
            seen.update(mapped)
        self.assertEqual(len(set(seen.values())), 2)
        for name in regions(warm)[0]:
            self.assertIn("no-key", name, "a worker without a key sees no model")
        self.assertIn("tenant/acme", self.shell.text("gpu", "show", "one/0"))
        self.assertIn("runtime-assigned", self.shell.text("events"))

        # The death of a worker costs its own tenant a moment, and the other tenant nothing.
        load = Load(lambda: (self.ask(2), self.ask(3)))
        load.wait(10)
        os.kill(acme, signal.SIGKILL)
        load.wait(10)
        load.stop()
        self.assertEqual(self.pid("tenant/bolt"), bolt)
        self.assertNotEqual(self.pid("tenant/acme"), acme)

    # Two workers take the same GPU at once and give it back for each other, and then nothing else happens there.
    def test_no_tenant_waits_for_what_another_one_has_given_back(self):
        daemon = self.start_isolated("tenant")
        self.deploy(daemon, 2, "?tenant=acme")
        self.deploy(daemon, 3, "?tenant=bolt")
        with ThreadPoolExecutor(4) as clients:
            for _ in range(300):
                list(clients.map(self.ask, (2, 3, 2, 3)))

    def test_more_functions_than_workers(self):
        daemon = self.start_isolated("function")
        for factor in (2, 3, 5, 7):
            self.deploy(daemon, factor, "?tenant=acme")
        for factor in (2, 3, 5, 7, 2, 7, 3):
            self.ask(factor)
        eventually(lambda: len(self.runtimes()) == 3, "all workers are up")
        self.assertLessEqual(self.served(), {f"function/times-{factor}" for factor in (2, 3, 5, 7)})
        self.assertIn("runtime-reclaimed", self.shell.text("events"))

    def test_functions_of_a_workflow_share_a_worker(self):
        daemon = self.start_isolated("workflow")
        functions, workflow = ensemble()
        for name, onnx in functions.items():
            daemon.http.deploy(name, onnx).good()
        daemon.http.call("POST", "/v2/troupe/workflows", workflow).good()
        eventually(lambda: daemon.http.get("/v2/models/ensemble").code == 200, "the workflow is known")
        image = {"image": np.ones((1, 1, 8, 8), np.float32)}
        answer = daemon.http.infer("ensemble", image)["probabilities"]
        self.assertAlmostEqual(sum(answer), 1, places=4)
        self.assertEqual(self.served(), {"workflow/ensemble"}, "all its steps ran on one worker")
        daemon.http.infer("digits-cnn", image)
        self.assertEqual(self.served(), {"workflow/ensemble", "function/digits-cnn"})

    def test_copies_between_gpus_states_and_mapped_weights_of_two_tenants(self):
        daemon = self.start("one", "all", isolation="tenant", runtimes=2, gpus=2, gpu_memory="20MiB", policy="torpor",
                            addresses="mapped", topology="switch:0-1,link:0-1=2GB", log_level="debug").wait_serving(gpus=2)
        http, tenants, rows = daemon.http, ("acme", "bolt"), []
        for i in range(3):  # more copies of the model than fit a worker
            onnx, weight = dense(4, seed=i)
            rows.append(weight[0])
            for tenant in tenants:
                http.deploy(f"{tenant}-{i}", onnx, f"?tenant={tenant}").good()
        for tenant in tenants:
            http.deploy(f"{tenant}-sum", accumulate(), f"?tenant={tenant}&state=s%3Dt").good()
        x = np.zeros((1, weight.shape[0]), np.float32)
        x[0, 0] = 1
        turn = iter(range(1 << 30))

        def ask():
            n = next(turn)
            i = n // 8 % 3
            found = np.array(http.infer(f"{tenants[n % 2]}-{i}", {"x": x})["y"])
            np.testing.assert_allclose(found, rows[i], rtol=1e-4, atol=1e-5)

        def copied(tenant):
            return re.findall(rf"debug swap: GPU \d: '{tenant}-\d' from GPU \d", daemon.log.read_text())
        load = Load(ask, threads=6)
        eventually(lambda: all(copied(tenant) for tenant in tenants), "both tenants' models are copied from GPU to GPU")
        for count in range(1, 9):  # the functions with state too, whichever worker serves them
            for tenant in tenants:
                found = http.infer(f"{tenant}-sum", {"x": x[:, :256]})["y"]
                np.testing.assert_array_equal(found, 2 * count * np.arange(1, 1025))
        load.stop()
        self.assertNotIn("swap-failed", daemon.log.read_text())

    def test_a_function_says_for_itself_and_an_idle_worker_is_given_back(self):
        daemon = self.start_isolated("shared", runtimes=3, runtime_idle="1s")
        self.deploy(daemon, 2, "?isolation=function")
        self.deploy(daemon, 3, "")
        self.ask(2)
        self.ask(3)
        found = self.runtimes("function/times-2")  # read once: the runtime may be given back at any time
        first = int(found[0]["pid"]) if found else 0
        eventually(lambda: len(self.runtimes("")) == 3, "no worker serves a key")
        self.assertNotIn(first, {int(runtime["pid"]) for runtime in self.runtimes()}, "a used worker is replaced")
        self.ask(2)
        for query in ("?isolation=private", "?precision=fp8", "?sm_partition=0"):
            refused = daemon.http.deploy("times-4", scale(4), query)
            self.assertEqual(refused.code, 400, refused.body)

    def test_a_node_that_comes_back_adopts_its_workers_with_whom_they_serve(self):
        front, (node,) = self.start_cluster(1, isolation="tenant")
        self.http = front.http
        self.http.deploy("times-2", scale(2), "?tenant=acme").good()
        self.ask(2)
        before = node.runtimes()
        self.assertEqual(len(before), 3)
        resident = eventually(lambda: self.http.function("times-2").get("resident_on"), "the model is on the GPU")
        node.kill()
        node = self.start("node-0", "node", manager=front.address("manager"), isolation="tenant")
        eventually(lambda: self.http.members().get("node-0") == "ALIVE", "the node is back")
        eventually(lambda: self.http.function("times-2").get("resident_on") == resident, "the model is still there")
        self.ask(2)
        self.assertEqual(node.runtimes(), before, "the workers are the same")


if __name__ == "__main__":
    main()
