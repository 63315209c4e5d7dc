"""The base of the tests: a temporary directory and daemons, both gone at the end."""
import pathlib
import shutil
import sys
import tempfile
import unittest

from . import processes
from .daemon import BIN, Daemon


class E2eTest(unittest.TestCase):
    def setUp(self):
        # In /tmp, because a Unix socket's path is short.
        self.directory = pathlib.Path(tempfile.mkdtemp(prefix="troupe-e2e-", dir="/tmp"))
        self.daemons = []
        self.addCleanup(self._clean)

    def start(self, directory, role, switches=(), **options):
        """A ready daemon; its directory lies in the test's own. The same directory again: a restart."""
        daemon = Daemon(self.directory / directory, role, switches, **options)
        self.daemons.append(daemon)
        return daemon

    def start_cluster(self, nodes=2, **options):
        """(front, nodes): manager and gateway in one process, each node in one of its own, everything ready."""
        front = self.start("front", "manager,gateway")
        running = [self.start(f"node-{i}", "node", manager=front.address("manager"), **options) for i in range(nodes)]
        front.wait_serving(gpus=0)
        return front, running

    def _clean(self):
        result = self._outcome.result
        failed = any(test is self for test, _ in result.errors + result.failures)
        for daemon in self.daemons:
            daemon.kill()
            if failed:
                print(f"--- {daemon.directory.name}, {daemon.process.returncode}\n{daemon.tail(60)}", file=sys.stderr)
        processes.kill(*processes.mentioning(str(self.directory)))
        shutil.rmtree(self.directory, ignore_errors=True)


def main():
    if not (BIN / "trouped").exists():
        sys.exit(f"{BIN}/trouped is not there: build it, and set TROUPE_BUILD_DIR to the build's directory")
    unittest.main(verbosity=2)
