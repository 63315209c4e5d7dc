"""The demo's processes: one manager + gateway and two nodes on loopback, their files in one temporary directory."""
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import time

NODES, GPUS = 2, 2
START_SECONDS = 30


class ClusterError(Exception):
    pass


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Cluster:
    """absent -> starting -> running -> stopped. `stop` may be called at any time, and twice."""

    def __init__(self, programs, gpu_memory):
        self.programs = pathlib.Path(programs)
        self.root = pathlib.Path(tempfile.mkdtemp(prefix="troupe-demo-"))
        self.gpu_memory = gpu_memory
        self.daemons = {}
        # The gateway must know the manager's port before there is a manager, so the system cannot choose it at bind.
        self.manager = f"127.0.0.1:{free_port()}"

    def start(self):
        self._spawn("front", "--role", "manager,gateway", "--http", "127.0.0.1:0")
        # Both nodes: the machine has few cores, and everything of the demo shares them.
        for i in range(NODES):
            self._spawn(f"node-{i}", "--role", "node", "--gpus", str(GPUS), "--gpu-memory", self.gpu_memory,
                        "--host-region", "1GiB", "--set", "lease=2s")
        self.url = re.search(r"gateway at (http://[0-9.:]+)", self._ready("front")).group(1)
        for i in range(NODES):
            self._ready(f"node-{i}")

    def _spawn(self, name, *options):
        home = self.root / name
        home.mkdir()
        # Silence is judged late: on two busy cores a heartbeat may be a second late although its member is alive.
        command = [str(self.programs / "trouped"), "--name", name, "--data", str(home), "--run", str(home / "r"),
                   "--manager", self.manager, "--set", "suspect=2s", "--set", "dead=5s", *options]
        with open(home / "out", "wb") as out, open(home / "log", "wb") as log:
            # A session of its own: Ctrl-C reaches only this script, which then stops the daemons in order.
            self.daemons[name] = subprocess.Popen(command, stdout=out, stderr=log, start_new_session=True)

    def _ready(self, name):
        end = time.monotonic() + START_SECONDS
        while time.monotonic() < end:
            text = (self.root / name / "out").read_text()
            if text.startswith("ready:") and text.endswith("\n"):
                return text
            if self.daemons[name].poll() is not None:
                break
            time.sleep(0.02)
        raise ClusterError(f"{name} did not become ready: {self.log(name)[-1500:]}")

    def log(self, name):
        return (self.root / name / "log").read_text(errors="replace")

    def processes(self):
        """{pid: command line} of every process of this cluster, the GPU workers too."""
        mine = {}
        for entry in pathlib.Path("/proc").iterdir():
            if not entry.name.isdigit():
                continue
            try:
                line = (entry / "cmdline").read_bytes().decode(errors="replace").split("\0")
            except OSError:
                continue
            if line[0].startswith(str(self.programs)) and any(word.startswith(f"{self.root}/") for word in line):
                mine[int(entry.name)] = line
        return mine

    def workers(self, name):
        """{GPU: pid of its worker} of one node."""
        return {int(line[line.index("--gpu") + 1]): pid for pid, line in self.processes().items()
                if line[0].endswith("troupe-gpu-worker") and line[line.index("--node") + 1] == name}

    def wait_for_workers(self):
        end = time.monotonic() + START_SECONDS
        while time.monotonic() < end:
            if all(self.log(f"node-{i}").count("worker-ready") >= GPUS for i in range(NODES)):
                return
            time.sleep(0.05)
        raise ClusterError("the GPU workers did not become ready: " + self.log("node-0")[-1500:])

    def kill_worker(self, name, gpu, give_up=30):
        """SIGKILLs a GPU worker; returns the seconds until its node reports the GPU ready again, or None."""
        ready = f"worker-ready: GPU {gpu},"
        before = self.log(name).count(ready)
        killed = time.monotonic()
        os.kill(self.workers(name)[gpu], signal.SIGKILL)
        while time.monotonic() < killed + give_up:
            if self.log(name).count(ready) > before:
                return time.monotonic() - killed
            time.sleep(0.005)
        return None

    def stop(self):
        for daemon in self.daemons.values():
            if daemon.poll() is None:
                daemon.terminate()
        end = time.monotonic() + 10
        for daemon in self.daemons.values():
            try:
                daemon.wait(max(0.1, end - time.monotonic()))
            except subprocess.TimeoutExpired:
                daemon.kill()
                daemon.wait()
        # Workers wait for the length of a lease for their daemon to come back, which here it does not.
        for pid in self.processes():
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        shutil.rmtree(self.root, ignore_errors=True)
