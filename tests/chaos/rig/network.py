"""A network of its own for each member, so that links can be cut and slowed: namespaces, veth pairs and a bridge.

Its parts have no names outside this process: the namespaces are held by descriptors, and go when it ends. The process
itself moves into the namespace of the bridge, where its clients live. Without root, iproute2 and nftables there is
Loopback: one network that cannot be cut.
"""
import ctypes
import os
import pathlib
import shutil
import subprocess
import sys

DELAY_LINE = pathlib.Path(__file__).resolve().parent / "delay_line.py"
CLONE_NEWNET = 0x40000000
SUBNET = "10.77.0"
TOOLS = ("ip", "nft", "nsenter")


def why_not():
    """Why namespaces cannot be made here; "" when they can."""
    if os.geteuid() != 0:
        return "only root makes network namespaces"
    missing = [tool for tool in TOOLS if shutil.which(tool, path=os.environ["PATH"] + ":/usr/sbin:/sbin") is None]
    if missing:
        return f"not installed: {', '.join(missing)} (deploy/bootstrap.sh installs iproute2 and nftables)"
    probe = subprocess.run(["unshare", "--net", "nft", "add table inet probe"], capture_output=True, text=True)
    return f"the kernel refuses: {probe.stderr.strip()}" if probe.returncode else ""


class Loopback:
    """All members at 127.0.0.1; ports are chosen by the system at the first start and kept."""
    can_cut = False

    def address(self, name):
        return "127.0.0.1"

    def prefix(self, name):
        return []

    def heal(self):
        pass


def _check(result, what):
    if result != 0:
        raise OSError(ctypes.get_errno(), f"{what}: {os.strerror(ctypes.get_errno())}")


class Namespaces:
    """One namespace a member, with the address 10.77.0.N. Made in the main thread, before there are others."""
    can_cut = True

    def __init__(self, names):
        self.libc = ctypes.CDLL(None, use_errno=True)
        self.places = {name: f"{SUBNET}.{number}" for number, name in enumerate(names, 11)}
        self.ports = {name: f"port{number}" for number, name in enumerate(names)}
        self.cut, self.line, self.slow = set(), None, []
        self._unshare()  # the hub: this process stays there
        hub = os.open("/proc/thread-self/ns/net", os.O_RDONLY)
        self.held = {}
        for name in names:
            self._unshare()
            self.held[name] = os.open("/proc/thread-self/ns/net", os.O_RDONLY)
            _check(self.libc.setns(hub, CLONE_NEWNET), "back to the hub's namespace")
        for words in ("link set lo up", "link add hub type bridge", f"addr add {SUBNET}.1/24 dev hub", "link set hub up"):
            self._run("ip", *words.split())
        for name, port in self.ports.items():
            self._run("ip", "link", "add", port, "type", "veth", "peer", "name", "eth0", "netns", self._path(name))
            self._run("ip", "link", "set", port, "master", "hub", "up")
            for words in ("link set lo up", f"addr add {self.places[name]}/24 dev eth0", "link set eth0 up"):
                self._run(*self.prefix(name), "ip", *words.split())

    def _unshare(self):
        _check(self.libc.unshare(CLONE_NEWNET), "a new network namespace")

    def _path(self, name):
        return f"/proc/{os.getpid()}/fd/{self.held[name]}"

    @staticmethod
    def _run(*words, stdin=None):
        done = subprocess.run(words, input=stdin, capture_output=True, text=True)
        if done.returncode:
            raise RuntimeError(f"{' '.join(words)}: {done.stderr.strip()}")

    def address(self, name):
        return self.places[name]

    def prefix(self, name):
        """The words in front of a command that make it run in the member's network; it keeps its process id."""
        return ["nsenter", f"--net={self._path(name)}", "--"]

    def _rules(self, name, chains):
        """Replaces the rules of a member: {hook: [rule]}."""
        text = "table inet chaos\ndelete table inet chaos\ntable inet chaos {\n"
        for hook, rules in chains.items():
            text += (f"  chain {hook} {{\n    type filter hook {hook} priority 0; policy accept;\n" +
                     "".join(f"    {rule}\n" for rule in rules) + "  }\n")
        self._run(*self.prefix(name), "nft", "-f", "-", stdin=text + "}\n")
        self.cut.add(name)

    def partition(self, name, others, way="both"):
        """`name` and `others` no longer hear each other; `way` in: it does not hear them; out: they do not hear it."""
        chains = {}
        if way in ("both", "in"):
            chains["input"] = [f"ip saddr {self.places[other]} drop" for other in others]
        if way in ("both", "out"):
            chains["output"] = [f"ip daddr {self.places[other]} drop" for other in others]
        self._rules(name, chains)

    def lose(self, name, percent):
        """Drops a random share of the packets that the member would get."""
        self._rules(name, {"input": [f"iifname eth0 numgen random mod 100 < {percent} drop"]})

    def delay(self, names, milliseconds, jitter, seed):
        """Each packet from and to these members takes so long, and up to `jitter` longer: a program stands between the
        member's port and the bridge, since few kernels have netem."""
        self.slow = list(names)
        ends = [(self.ports[name], f"wire{number}", f"line{number}") for number, name in enumerate(self.slow)]
        for _, wire, line in ends:
            self._run("ip", "link", "add", line, "type", "veth", "peer", "name", wire)
            self._run("ip", "link", "set", line, "arp", "off", "up")
            self._run("ip", "link", "set", wire, "master", "hub", "up")
        devices = [device for port, _, line in ends for device in (port, line)]
        self.line = subprocess.Popen([sys.executable, "-B", DELAY_LINE, str(seed), str(milliseconds), str(jitter), *devices],
                                     stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        if self.line.stdout.readline() != "ready\n":
            raise RuntimeError(f"the delay line ended with {self.line.wait()}")
        for port, _, _ in ends:  # without ARP, or the kernel would answer for the hub there
            self._run("ip", "link", "set", port, "nomaster", "arp", "off")

    def hasten(self):
        """Ends the delay; returns how many packets were delayed."""
        if self.line is None:
            return 0
        line, self.line = self.line, None
        told, _ = line.communicate()
        for number, name in enumerate(self.slow):
            self._run("ip", "link", "set", self.ports[name], "arp", "on", "master", "hub")
            self._run("ip", "link", "del", f"wire{number}")
        self.slow = []
        return int(told)

    def heal(self):
        self.hasten()
        for name in list(self.cut):
            self._run(*self.prefix(name), "nft", "delete", "table", "inet", "chaos")
            self.cut.discard(name)


def make(names):
    """(network, why it cannot be cut)."""
    reason = why_not()
    return (Loopback(), reason) if reason else (Namespaces(names), "")
