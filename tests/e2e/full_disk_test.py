#!/usr/bin/python3
"""On a full disk changes that cannot be kept are refused, acknowledged ones stay, and with new room everything works again."""
import os
import subprocess
import unittest

import numpy as np

from harness import E2eTest, Load, StartFailed, eventually, main
from harness.networks import dense, scale
from harness.shell import Shell

X = {"x": np.ones((1, 4), np.float32)}


@unittest.skipIf(os.geteuid() != 0, "only root may mount a small file system")
class FullDisk(E2eTest):
    def setUp(self):
        super().setUp()
        self.disk = self.directory / "disk"
        self.disk.mkdir()
        done = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64m", "tmpfs", self.disk], capture_output=True, text=True)
        if done.returncode != 0:
            self.skipTest(f"no file system can be mounted here: {done.stderr.strip()}")
        # Cleanups run in reverse: the daemon has to close its files before the disk goes.
        self.addCleanup(subprocess.run, ["umount", "-l", self.disk], check=True)
        self.addCleanup(lambda: [daemon.kill() for daemon in self.daemons])

    def fill(self):
        """Fills the disk; returns the file to remove."""
        filler = self.disk / "filler"
        with filler.open("wb", buffering=0) as file:
            try:
                while True:
                    file.write(bytes(1 << 16))
            except OSError:
                pass
        return filler

    def test_deployments_fail_cleanly_and_work_again(self):
        daemon = self.start("one", "all", data=self.disk / "data").wait_serving()
        http = daemon.http
        http.deploy("double", scale(2)).good()
        self.assertEqual(http.infer("double", X)["y"], [2.0] * 4)
        filler = self.fill()
        load = Load(lambda: self.assertEqual(http.infer("double", X)["y"], [2.0] * 4), threads=1)
        for name, onnx in (("large", dense(8)[0]), ("triple", scale(3))):
            answer = http.deploy(name, onnx)
            self.assertEqual(answer.code, 507, answer.body)
            self.assertNotIn("Retry-After", answer.headers)
            self.assertTrue(answer.error)
            self.assertEqual(http.get(f"/v2/models/{name}").code, 404, "the refused functions are not there")
        load.wait(5)
        load.stop()
        filler.unlink()
        eventually(lambda: http.deploy("triple", scale(3)).code == 200, "with room, deployments work again")
        self.assertEqual(http.infer("triple", X)["y"], [3.0] * 4)
        # No acknowledged function is lost, and no refused one exists.
        self.assertEqual(daemon.terminate(), 0)
        daemon = self.start("one", "all", data=self.disk / "data").wait_serving()
        names = {entry["record"]["key"]["name"] for entry in daemon.http.get("/v2/troupe/functions").good().json}
        self.assertEqual(names, {"double", "triple"})
        self.assertEqual(daemon.http.infer("triple", X)["y"], [3.0] * 4)

    def test_a_separate_gateway_says_so_too(self):
        manager = self.start("manager", "manager", data=self.disk / "data")
        gateway = self.start("gateway", "gateway", manager=manager.address("manager"))
        self.start("node", "node", manager=manager.address("manager"))
        gateway.wait_serving(gpus=0)
        http = gateway.http
        http.deploy("double", scale(2)).good()
        filler = self.fill()
        for name, onnx in (("large", dense(8)[0]), ("triple", scale(3))):
            answer = http.deploy(name, onnx)
            self.assertEqual(answer.code, 507, answer.body)
            self.assertNotIn("Retry-After", answer.headers)
        filler.unlink()
        eventually(lambda: http.deploy("triple", scale(3)).code == 200, "with room, deployments work again")

    def test_usage_waits_for_room_and_loses_nothing(self):
        daemon = self.start("one", "all", data=self.disk / "data").wait_serving()
        daemon.http.deploy("double", scale(2)).good()
        shell = Shell(daemon.address("manager"), self.directory)

        def runs():
            return sum(int(row.get("runs", 0)) for row in shell.json("usage").get("usage", []))

        def ask(times):
            for _ in range(times):
                self.assertEqual(daemon.http.infer("double", X)["y"], [2.0] * 4)
        ask(3)
        eventually(lambda: runs() == 3, "the manager has what was used")
        filler = self.fill()
        ask(5)
        eventually(lambda: "usage-not-" in daemon.log.read_text(), "the log says that usage waits")
        ask(2)
        filler.unlink()
        eventually(lambda: runs() == 10, "with room, the manager has all of it")

    def test_a_daemon_that_starts_on_a_full_disk_says_so(self):
        daemon = self.start("one", "all", data=self.disk / "data").wait_serving()
        daemon.http.deploy("double", scale(2)).good()
        daemon.kill()
        filler = self.fill()
        with self.assertRaises(StartFailed) as refused:
            self.start("again", "all", data=self.disk / "data", run=self.directory / "run")
        self.assertEqual(refused.exception.code, 2)
        self.assertRegex(refused.exception.errors, "disk .* is full")
        filler.unlink()
        daemon = self.start("one", "all", data=self.disk / "data").wait_serving()
        self.assertEqual(daemon.http.infer("double", X)["y"], [2.0] * 4)


if __name__ == "__main__":
    main()
