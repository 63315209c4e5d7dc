#!/usr/bin/python3
"""What the kernel says of a jailed import is what docs/security.md says."""
import os
import pathlib
import subprocess
import tempfile
import threading

from harness import E2eTest, main
from harness.daemon import BIN
from harness.networks import accumulate
from harness.waiting import eventually

NONE = "0" * 16


def status_of(pid):
    lines = pathlib.Path(f"/proc/{pid}/status").read_text().splitlines()
    return {key: value.strip() for key, _, value in (line.partition(":") for line in lines)}


class Jail(E2eTest):
    def check_caged(self, status):
        self.assertEqual(status["Seccomp"], "2", status)
        self.assertEqual(status["NoNewPrivs"], "1", status)
        for kind in ("CapInh", "CapPrm", "CapEff", "CapAmb"):
            self.assertEqual(status[kind], NONE, status)

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
