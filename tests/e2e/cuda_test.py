#!/usr/bin/python3
"""--device cuda: a node of real GPUs. The tests run on the fake driver of the build, which computes on the host; the
daemons, workers and the plug-in are those that a machine with GPUs runs."""
import itertools
import os
import re

import numpy as np

from harness import E2eTest, Load, eventually, main
from harness.daemon import BIN
from harness.networks import dense, digits, scale
from harness.shell import Shell

X = np.arange(8, dtype=np.float32).reshape(2, 4)


class Cuda(E2eTest):
    def machine(self, words):
        """Sets the fake GPUs for workers that are started from now on."""
        os.environ["LD_LIBRARY_PATH"] = str(BIN.parent / "tests" / "fake_cuda")
        os.environ["TROUPE_FAKE_CUDA"] = words
        self.addCleanup(os.environ.pop, "LD_LIBRARY_PATH")
        self.addCleanup(os.environ.pop, "TROUPE_FAKE_CUDA")

    def gpus_up(self, daemon):
        metrics = daemon.operations.get("/metrics").body.decode().splitlines()
        return [int(float(line.split()[-1])) for line in metrics if line.startswith("troupe_gpu_up{")]

    def test_digits_and_a_killed_worker(self):
        self.machine("devices=2")
        daemon = self.start("one", "all", gpus=2, device="cuda", gpu_memory="32MiB").wait_serving(gpus=2)
        onnx, images, labels = digits()
        eventually(lambda: daemon.log.read_text(errors="replace").count("its driver is for CUDA 13.0") == 2,
                   "the log says in a line what each GPU is")
        daemon.http.deploy("digits", onnx).good()
        starts = itertools.count()

        def ask():
            at = next(starts) % 60 * 6
            rows = daemon.http.infer("digits", {"image": images[at:at + 6]})["probabilities"]
            right = (np.array(rows).reshape(6, 10).argmax(axis=1) == labels[at:at + 6]).sum()
            self.assertGreaterEqual(right, 4, "of 6")
        load = Load(ask, threads=2)
        load.wait(20)
        daemon.kill_workers()
        load.wait(20)
        load.stop()
        eventually(lambda: self.gpus_up(daemon) == [1, 1], "both GPUs are up again")

    def test_models_that_do_not_fit_come_from_the_host_and_from_the_other_gpu(self):
        self.machine("devices=2")
        daemon = self.start("one", "all", gpus=2, device="cuda", gpu_memory="10MiB", policy="torpor", log_level="debug",
                            addresses="mapped", topology="switch:0-1,link:0-1=10GB").wait_serving(gpus=2)
        rows = []
        for i in range(3):  # the memory of each GPU has room for two of them
            onnx, weight = dense(4, seed=i)
            daemon.http.deploy(f"dense-{i}", onnx).good()
            rows.append(weight[0])
        x = np.zeros((1, weight.shape[0]), np.float32)
        x[0, 0] = 1
        turns = itertools.count()

        def ask():
            i = next(turns) // 8 % 3  # both GPUs need the same model
            np.testing.assert_allclose(daemon.http.infer(f"dense-{i}", {"x": x})["y"], rows[i], rtol=1e-4, atol=1e-5)

        def swaps(source):
            return len(re.findall(rf" swap: GPU [01]: 'dense-[012]' from {source}", daemon.log.read_text()))
        load = Load(ask, threads=4)
        # How many come from where is the scheduler's to choose: each comes from the host once at least.
        eventually(lambda: swaps("host") >= 3 and swaps("GPU") >= 5, "models come and go while requests run")
        load.stop()
        self.assertNotIn("swap-failed", daemon.log.read_text())
        self.assertEqual(daemon.log.read_text().count("worker-starting"), 2, "no worker was lost")

    def test_a_gpu_that_is_not_there_is_unfit_and_the_other_serves(self):
        self.machine("devices=1")
        daemon = self.start("one", "all", gpus=2, device="cuda", gpu_memory="32MiB").wait_serving(gpus=1)
        daemon.http.deploy("twice", scale(2)).good()
        self.assertEqual(daemon.http.infer("twice", {"x": X})["y"], (2 * X).reshape(-1).tolist())
        eventually(lambda: "no device: cuda:1 was asked for, this machine has 1 GPUs" in daemon.log.read_text(errors="replace"),
                   "the log says what is wrong with GPU 1")
        eventually(lambda: sorted(self.gpus_up(daemon)) == [0, 1], "one GPU is up")
        self.assertEqual(list(daemon.workers()), [0], "the worker of the missing GPU is not started again")

    def told(self, lines):
        """Sets what the fake management library says from now on."""
        with open(self.directory / "nvml", "a") as file:
            file.write(lines)
        os.environ["TROUPE_FAKE_NVML"] = str(self.directory / "nvml")
        self.addCleanup(os.environ.pop, "TROUPE_FAKE_NVML", None)

    def test_a_gpu_that_its_driver_gives_up_is_unfit_and_readiness_says_why(self):
        self.machine("devices=2")
        self.told("gpus 2\nswitch 0 1\nlink 0 1 2 25000\n")
        daemon = self.start("one", "all", gpus=2, device="cuda", gpu_memory="32MiB", topology="auto").wait_serving(gpus=2)
        self.assertIn("topology: switch:0-1,link:0-1=50000000000B", daemon.log.read_text(errors="replace"))
        daemon.http.deploy("twice", scale(2)).good()
        shell = Shell(daemon.address("manager"), self.directory)
        self.told("xid 1 31\nxid 1 79\n")
        eventually(lambda: "one/1 is unfit: critical error Xid 79" in shell.text("gpu", "list"), "GPU 1 is unfit")
        self.assertEqual(daemon.http.infer("twice", {"x": X})["y"], (2 * X).reshape(-1).tolist())
        # An error of the memory alone leaves a GPU in use, as long as its driver can exchange rows.
        self.told("xid 0 48\nxid 0 119\n")
        eventually(lambda: daemon.operations.get("/healthz").code == 503, "nothing is ready")
        eventually(lambda: "GPU 0 is unfit: critical error Xid 119; GPU 1 is unfit: critical error Xid 79"
                   in daemon.operations.get("/healthz").body.decode(), "and why")

    def test_a_gpu_that_falls_off_the_bus_is_unfit_and_the_other_serves(self):
        self.machine("devices=2")
        self.told("gpus 2\n")
        daemon = self.start("one", "all", gpus=2, device="cuda", gpu_memory="32MiB").wait_serving(gpus=2)
        daemon.http.deploy("twice", scale(2)).good()
        shell = Shell(daemon.address("manager"), self.directory)
        self.told("lost 1\n")
        eventually(lambda: "one/1 is unfit: it fell off the bus" in shell.text("gpu", "list"), "GPU 1 is unfit")
        self.assertEqual(daemon.http.infer("twice", {"x": X})["y"], (2 * X).reshape(-1).tolist())
        self.assertEqual(daemon.log.read_text(errors="replace").count("worker-starting"), 2, "it is not started again")

    def test_a_gpu_in_parts_is_unfit_and_the_log_says_why(self):
        self.machine("devices=2")
        self.told("gpus 2\nmig 1\n")
        daemon = self.start("one", "all", gpus=2, device="cuda", gpu_memory="32MiB").wait_serving(gpus=1)
        eventually(lambda: "kept off the GPU: cuda:1 is cut into instances (MIG)" in daemon.log.read_text(errors="replace"),
                   "the log says what is wrong with GPU 1")
        eventually(lambda: sorted(self.gpus_up(daemon)) == [0, 1], "one GPU is up")

    def test_who_holds_a_gpus_memory_is_named(self):
        self.machine("devices=1,held=260000000")
        self.told("gpus 1\nholder 0 4711 python 260000000\n")
        daemon = self.start("one", "all", gpus=1, device="cuda", gpu_memory="32MiB")
        eventually(lambda: "process 4711 (python) has 248 MiB" in daemon.log.read_text(errors="replace"), "the log says who")


if __name__ == "__main__":
    main()
