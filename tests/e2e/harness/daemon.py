"""trouped as a child process. It chooses its ports itself and prints them in its 'ready:' line."""
import os
import pathlib
import queue
import re
import signal
import subprocess
import threading

from . import processes
from .client import Client
from .waiting import DEADLINE, eventually

BIN = pathlib.Path(os.environ.get("TROUPE_BUILD_DIR", "build/release")).resolve() / "bin"

# Small, so that several daemons fit a small machine.
DEFAULTS = {
    "manager": "127.0.0.1:0",
    "http": "127.0.0.1:0",
    "gpu-memory": "64MiB",
    "host-region": "256MiB",
    "arena": "32MiB",
}


# The options that are flags, as `trouped --help` says; the advanced ones are set by their names.
FLAGS = set(re.findall(r"^\s+--([a-z-]+)", subprocess.run([BIN / "trouped", "--help"], capture_output=True, text=True,
                                                        check=True).stdout, re.MULTILINE))


class StartFailed(Exception):
    def __init__(self, code, errors):
        super().__init__(f"trouped ended with {code} before it was ready: {errors}")
        self.code, self.errors = code, errors


class Daemon:
    """One trouped. Its data and sockets lie in `directory`; a new Daemon with the same directory is a restart.

    The constructor returns when the daemon is ready, else it raises StartFailed. `prefix` is a command that starts the daemon
    in its own process (nsenter ...). The owner stops the daemon (terminate, kill);
    E2eTest does so at the end for what is left.
    """

    def __init__(self, directory, role, switches=(), prefix=(), **options):
        self.directory = pathlib.Path(directory)
        self.directory.mkdir(parents=True, exist_ok=True)
        self.log = self.directory / "trouped.log"
        self.settings = {"role": role, "data": str(self.directory / "data"), "run": str(self.directory / "run"),
                         "name": self.directory.name, **DEFAULTS}
        self.settings.update({key.replace("_", "-"): str(value) for key, value in options.items()})
        flags = [f"--{key}={value}" if key in FLAGS else f"--set={key}={value}" for key, value in self.settings.items()]
        with self.log.open("ab") as log:
            self.process = subprocess.Popen([*prefix, BIN / "trouped", *flags, *(f"--{name}" for name in switches)],
                                            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=log, text=True,
                                            errors="replace")
        self.lines = queue.Queue()
        threading.Thread(target=self._read, daemon=True).start()
        self.ready = self._wait_ready()

    def _read(self):
        for line in self.process.stdout:
            self.lines.put(line.rstrip("\n"))
        self.process.stdout.close()
        self.lines.put(None)

    def _wait_ready(self):
        try:
            line = self.lines.get(timeout=DEADLINE)
        except queue.Empty:
            self.kill()
            raise StartFailed(None, f"not ready within {DEADLINE:g} s: {self.tail()}") from None
        if line is None:
            raise StartFailed(self.process.wait(), self.tail())
        assert line.startswith("ready:"), f"the first line has to say that the daemon is ready: {line}"
        return line

    def tail(self, lines=20):
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:])

    def address(self, what):
        """The address behind `what` in the ready line: 'manager at', 'gateway at http://' or 'operations at http://'."""
        found = re.search(rf"{what} at (?:https?://)?([^\s,]+)", self.ready)
        assert found, f"no {what} in {self.ready}"
        return found.group(1)

    @property
    def http(self):
        return Client(self.address("gateway"))

    @property
    def operations(self):
        return Client(self.address("operations"))

    def runtimes(self):
        """{(GPU, runtime): pid} of the living GPU workers of this node."""
        found = {}
        for pid, arguments in processes.mentioning(self.settings["run"] + "/worker-").items():
            if arguments[0].endswith("troupe-gpu-worker"):
                socket = next(argument for argument in arguments if "/worker-" in argument)
                gpu, runtime = re.search(r"/worker-(\d+)(?:\.\d+-(\d+))?\.sock", socket).groups()
                found[int(gpu), int(runtime or 0)] = pid
        return found

    def workers(self):
        """{GPU: pid} of the living GPU workers of a node that has one for each GPU."""
        return {gpu: pid for (gpu, runtime), pid in self.runtimes().items() if runtime == 0}

    def terminate(self):
        """Sends SIGTERM; returns the exit code."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(timeout=DEADLINE)

    def kill(self):
        """Kills the daemon alone with SIGKILL; its workers wait until their lease ends."""
        self.process.kill()
        self.process.wait()

    def kill_workers(self):
        """Kills the GPU workers at once with SIGKILL and leaves the daemon alone."""
        processes.kill(*self.workers().values())

    def kill_node(self):
        """Kills the daemon and its workers at once, as when the machine loses power."""
        workers = self.runtimes()
        self.kill()
        processes.kill(*workers.values())

    def wait_serving(self, gpus=1):
        """Waits until the HTTP front is ready and the node's workers are up."""
        eventually(lambda: self.http.get("/v2/health/ready").code == 200, "the front is ready")
        eventually(lambda: len(self.workers()) >= gpus, "the workers run")
        return self
