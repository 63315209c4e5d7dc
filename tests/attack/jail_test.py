#!/usr/bin/python3
"""Imports and runs work inside their jails, and what the kernel says of the jailed processes is what docs/security.md says."""
import os
import pathlib
import subprocess
import tempfile
import threading

import numpy as np

from harness import E2eTest, main
from harness.daemon import BIN
from harness.networks import accumulate
from harness.waiting import eventually

NONE = "0" * 16


def status_of(pid):
    lines = pathlib.Path(f"/proc/{pid}/status").read_text().splitlines()
    return {key: value.strip() for key, _, value in (line.partition(":") for line in lines)}


class Jail(E2eTest):
    def start_one(self, **flags):
        return self.start("one", "all", gpus=1, gpu_memory="8MiB", **flags).wait_serving()

    def check_caged(self, status):
        self.assertEqual(status["Seccomp"], "2", status)
        self.assertEqual(status["NoNewPrivs"], "1", status)
        for kind in ("CapInh", "CapPrm", "CapEff", "CapAmb"):
            self.assertEqual(status[kind], NONE, status)

    def test_an_import_and_a_run_under_required(self):
        daemon = self.start_one(import_sandbox="required")
        daemon.http.deploy("counted", accumulate(), "?state=s%3Dt").good()
        x = np.zeros((1, 256), np.float32)
        x[0, 0] = 1
        self.assertEqual(round(float(daemon.http.infer("counted", {"x": x})["y"][0])), 2)
        self.assertIn("imports run in a jail", daemon.log.read_text())
        for pid in daemon.workers().values():
            self.check_caged(status_of(pid))
            self.assertEqual(status_of(pid)["CapBnd"] == NONE, os.geteuid() == 0)

    def test_a_worker_is_out_of_reach_of_its_user(self):
        """A process of the same user, without capabilities, can look into any other of its kind, and into no worker."""
        plain = ["setpriv", "--bounding-set=-all", "--inh-caps=-all"] if os.geteuid() == 0 else []

        def looks_into(pid):
            return subprocess.run([*plain, "head", "-c1", f"/proc/{pid}/environ"], capture_output=True).returncode == 0
        daemon = self.start_one()
        other = subprocess.Popen([*plain, "sleep", "600"])
        try:
            eventually(lambda: looks_into(other.pid), "the attempt succeeds where nothing is in its way")
            for pid in daemon.workers().values():
                self.assertFalse(looks_into(pid))
        finally:
            other.kill()
            other.wait()

    def test_a_jailed_import_has_nothing(self):
        """The importer blocks when it tells its progress, to a pipe that stays full, while the kernel is asked about it."""
        with tempfile.TemporaryDirectory() as folder:
            model = pathlib.Path(folder) / "model.onnx"
            model.write_bytes(accumulate())
            output = pathlib.Path(folder) / "out"
            output.mkdir()
            reader, writer = os.pipe()
            os.set_blocking(writer, False)
            try:
                while True:
                    os.write(writer, b"x" * 4096)
            except BlockingIOError:
                os.set_blocking(writer, True)
            child = subprocess.Popen([BIN / "troupe-import", "--onnx", model, "--output", output], stdout=writer,
                                     stderr=subprocess.PIPE)
            os.close(writer)
            try:
                eventually(lambda: status_of(child.pid)["Seccomp"] == "2", "the importer is in its jail")
                status = status_of(child.pid)
                self.check_caged(status)
                self.assertEqual(status["Threads"], "1")
                if os.geteuid() == 0:
                    self.assertEqual(status["CapBnd"], NONE)
                    self.assertNotIn("0", status["Uid"].split())
                    self.assertEqual(os.listdir(f"/proc/{child.pid}/root"), [])
            finally:
                drained = threading.Thread(target=lambda: self.drain(reader))
                drained.start()
                self.assertEqual(child.wait(timeout=60), 0, child.stderr.read())
                child.stderr.close()
                drained.join()
                os.close(reader)

    @staticmethod
    def drain(reader):
        while os.read(reader, 65536):
            pass


if __name__ == "__main__":
    main()
