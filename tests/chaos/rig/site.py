"""The cluster under test: a manager, two gateways and three nodes of two virtual GPUs, each on a host of its own as far as
it knows (--host-id), and in a network of its own where there are namespaces."""
import contextlib
import pathlib
import shutil
import subprocess
import tempfile

from harness import Client, Daemon, eventually, processes

MANAGER, GATEWAYS, NODES = "manager", ("gateway-0", "gateway-1"), ("node-0", "node-1", "node-2")
MEMBERS = (*GATEWAYS, *NODES)
ALL = (MANAGER, *MEMBERS)
GPUS = 2
MANAGER_PORT, HTTP_PORT = 7400, 8000
DISK_MIB = {MANAGER: 96, **dict.fromkeys(NODES, 48)}
# A fault after which the cluster is not healthy for this long counts as one from which it does not recover. A busy machine is
# slow, so the time is long.
PATIENCE = 90.0


class Site:
    """Every daemon is in `up` while it runs. Owner: the program; close() ends what is left."""

    def __init__(self, network, options=()):
        self.network, self.options = network, dict(options)
        self.directory = pathlib.Path(tempfile.mkdtemp(prefix="troupe-chaos-", dir="/tmp"))  # short: Unix sockets
        self.up, self.ports, self.disks = {}, {}, {}
        self.starts = 0

    def __enter__(self):
        self._mount()
        try:
            for name in ALL:
                self.start(name)
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, kind, value, trace):
        if kind is not None:
            self.print_logs()
        self.close()

    def _mount(self):
        """The manager and the nodes get small disks of their own, where a file system may be mounted."""
        for name, size in DISK_MIB.items():
            disk = self.directory / "disks" / name
            disk.mkdir(parents=True)
            done = subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}m", "tmpfs", disk], capture_output=True)
            if done.returncode == 0:
                self.disks[name] = disk

    def close(self):
        self.network.heal()
        for name in list(self.up):
            self.up.pop(name).kill()
        processes.kill(*processes.mentioning(str(self.directory)))
        for disk in self.disks.values():
            subprocess.run(["umount", "-l", disk], check=False)
        shutil.rmtree(self.directory, ignore_errors=True)

    def _data(self, name):
        return self.disks.get(name, self.directory / name) / "data"

    @contextlib.contextmanager
    def full(self, *names):
        """The disks of these members are full until the end of the block."""
        fillers = [self.disks[name] / "filler" for name in names]
        try:
            for filler in fillers:
                with filler.open("wb", buffering=0) as file, contextlib.suppress(OSError):
                    while True:
                        file.write(bytes(1 << 16))
            yield
        finally:
            for filler in fillers:
                filler.unlink(missing_ok=True)

    # --- daemons ---

    def _settings(self, name):
        address = self.network.address(name)
        port = (lambda what, wanted: wanted if self.network.can_cut else self.ports.get((name, what), 0))
        manager = self.network.address(MANAGER)
        number = MANAGER_PORT if self.network.can_cut else self.ports.get((MANAGER, "manager"), 0)
        settings = {"manager": f"{manager}:{number}", "listen": f"{address}:0", "operations": f"{address}:0",
                    "host-id": f"host-{name}", "hang": "2s", "data": self._data(name), **self.options}
        if name in GATEWAYS:
            settings["http"] = f"{address}:{port('gateway', HTTP_PORT)}"
        if name in NODES:
            settings["gpus"] = GPUS
        return settings

    def start(self, name):
        role = "manager" if name == MANAGER else "gateway" if name in GATEWAYS else "node"
        switches = ["allow-faults", *(["insecure-network"] if self.network.can_cut else [])]
        self.starts += 1
        daemon = Daemon(self.directory / name, role, switches, prefix=self.network.prefix(name), **self._settings(name))
        self.up[name] = daemon
        if name == MANAGER or name in GATEWAYS:
            what = "manager" if name == MANAGER else "gateway"
            self.ports[name, what] = int(daemon.address(what).rpartition(":")[2])
        return daemon

    def http(self, name):
        return Client(f"{self.network.address(name)}:{self.ports[name, 'gateway']}")

    @property
    def manager_address(self):
        return f"{self.network.address(MANAGER)}:{self.ports[MANAGER, 'manager']}"

    @property
    def store(self):
        """The database of the manager's metadata."""
        return self._data(MANAGER) / "metadata" / "db"

    def pid(self, name):
        return self.up[name].process.pid

    def workers(self, name):
        """{GPU: pid}"""
        return self.up[name].workers()

    def kill(self, name):
        """Kills the daemon alone with SIGKILL."""
        self.up.pop(name).kill()

    def kill_node(self, name):
        """Kills the daemon and its workers, as when the machine loses power."""
        self.up.pop(name).kill_node()

    def kill_everything(self):
        """Kills all processes, daemons first; returns the number of them."""
        pids = [*(daemon.process.pid for daemon in self.up.values()),
                *(pid for name in NODES if name in self.up for pid in self.up[name].runtimes().values())]
        for pid in pids:
            subprocess.run(["kill", "-9", str(pid)], check=False)
        for pid in pids[len(self.up):]:
            processes.kill(pid)
        for name in list(self.up):
            self.up.pop(name).kill()
        return len(pids)

    # --- health ---

    def status(self):
        """What the manager says of its members, through the first gateway that answers; None when none does."""
        for name in GATEWAYS:
            try:
                answer = self.http(name).call("GET", "/v2/troupe/cluster", timeout=2)
            except OSError:
                continue
            if answer.code == 200:
                return {entry["member"]["name"]: entry["member"] for entry in answer.json["members"]}
        return None

    def sick(self, status):
        """What is not healthy; "" when everything is."""
        if status is None:
            return "no gateway can ask the manager"
        for name in MEMBERS:
            state = status.get(name, {}).get("state", "not there")
            if state != "MEMBER_ALIVE":
                return f"{name} is {state}"
        for name in NODES:
            states = [gpu["state"] for gpu in status[name]["gpus"]]
            if states != ["ready"] * GPUS:
                return f"{name}'s GPUs are {states}"
        return ""

    def wait_members(self):
        """Waits until every member is alive and every GPU ready."""
        seen = {}

        def well():
            seen["sick"] = self.sick(self.status())
            return not seen["sick"]
        try:
            eventually(well, "every member is alive", PATIENCE)
        except AssertionError:
            raise AssertionError(f"no return to health within {PATIENCE:g} s: {seen['sick']}") from None

    def print_logs(self, lines=40):
        for name in ALL:
            log = self.directory / name / "trouped.log"
            if log.exists():
                print(f"--- {name}\n" + "\n".join(log.read_text(errors="replace").splitlines()[-lines:]))
