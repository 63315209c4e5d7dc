"""Frames and handshakes that claim more than they send or make no sense, and connections that say nothing, at every
socket of a cluster: actor ports, operations ports, those at which other hosts fetch tensors, the sockets that hand out arenas, those at which workers are adopted
and at which broadcasts meet.

frames_test.py [--frames N] [--seed N] [--rate N]: how many frames in all (default 4,000, which is a few seconds), and how many
each second at most (default 0: as many as this process can send, which takes a core of the machine that the daemons run on).
With a rate it also asserts that the 99th percentile of other clients' requests is at most twice what it was.
"""
import array
import glob
import http.client
import multiprocessing
import os
import pathlib
import random
import socket
import struct
import sys
import time

import numpy as np

from harness import E2eTest, eventually, main
from harness.client import infer_body
from harness.networks import scale

FRAMES = 4000
RATE = 0
SEED = 1
KINDS = range(8)
NODE = 32  # bytes of a node id
ROOM = 64 << 20
REFUSED = {  # by kind of socket: what a daemon counts of it
    "actor": 'troupe_peer_connections_refused_total{reason="broken_frame"}',
    "operations": 'troupe_operations_refused_total{reason="broken"}',
    "tensors": 'troupe_socket_refused_total{reason="broken_message",socket="tensors"}',
    "arena": 'troupe_socket_refused_total{reason="broken_message",socket="arena"}',
}


def header(kind, length, rest=b"\0" * 24):
    return struct.pack(">BBBBI", kind, 0, 0, 0, length) + rest


def rss(pid):
    with open(f"/proc/{pid}/statm") as statm:
        return int(statm.read().split()[1]) * 4096


def descriptors(pid):
    return len(glob.glob(f"/proc/{pid}/fd/*"))


class Actor:
    """The port of a daemon's actors on this machine: loopback addresses are abstract Unix sockets."""
    kind = "actor"

    def __init__(self, address):
        self.address = f"\0troupe/{address}"
        # The daemon's handshake begins with its node id; another process on another host has other bytes behind the kind.
        with self.connect() as line:
            said = b""
            while len(said) < 32 + NODE:
                said += line.recv(4096)
        self.kind_of_node = said[32:32 + 8]

    def connect(self):
        line = socket.socket(socket.AF_UNIX)
        line.settimeout(10)
        line.connect(self.address)
        return line

    def hello(self, chance):
        return header(1, NODE) + self.kind_of_node + chance.randbytes(NODE - 8)

    def frames(self, chance):
        hello = bytearray(self.hello(chance))
        frame = bytearray(header(chance.choice(KINDS), chance.choice((0, 1, 40, 1 << 16, 1 << 26, 0xFFFFFFFF)),
                                 chance.randbytes(24)) + chance.randbytes(chance.randrange(64)))
        if chance.random() < 0.5:
            frame[chance.randrange(len(frame))] ^= 1 << chance.randrange(8)
        if chance.random() < 0.3:
            hello[chance.randrange(len(hello))] ^= 1 << chance.randrange(8)
        return (bytes(frame),) if chance.random() < 0.3 else (bytes(hello), bytes(frame))

    @staticmethod
    def send(line, frame, chance):
        line.sendall(frame)


class Operations:
    kind = "operations"
    requests = (b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n", b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n",
                b"PUT /loglevel HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\n\r\ninfo",
                b"PUT /loglevel HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n4\r\ninfo\r\n0\r\n\r\n",
                b"PUT /loglevel HTTP/1.1\r\nHost: x\r\nContent-Length: 4294967295\r\n\r\n")

    def __init__(self, address):
        host, _, port = address.rpartition(":")
        self.address = (host, int(port))

    def connect(self):
        return socket.create_connection(self.address, timeout=10)

    def frames(self, chance):
        return (mutated(chance.choice(self.requests), chance),)

    @staticmethod
    def send(line, frame, chance):
        line.sendall(frame)


class Unix:
    """A socket in a run directory; `good` are messages that it understands."""

    def __init__(self, path, kind, good):
        self.path, self.kind, self.good = path, kind, good
        self.carried = open("/dev/null", "rb")  # a descriptor that the receiver has no use for

    def connect(self):
        line = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        line.settimeout(10)
        line.connect(self.path)
        return line

    def frames(self, chance):
        return tuple(mutated(chance.choice(self.good), chance) or b"x" for _ in range(chance.randrange(1, 3)))

    def send(self, line, frame, chance):
        count = chance.choice((0, 0, 0, 1, 3, 16, 40))
        rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [self.carried.fileno()] * count))] if count else []
        line.sendmsg([frame], rights)


class Tensors(Operations):
    """The port at which other hosts fetch tensors: the frames ask for slices without a valid token."""
    kind = "tensors"
    requests = (struct.pack("<IIQQQQQ", 0x74726663, 3, 1, 2, 3, 4, 5) + b"\0" * 32,
                struct.pack("<IIQQQQQ", 0x74726663, 3, 1, 2, 0, 2**64 - 1, 5) + b"\xff" * 32)


ARENA = (struct.pack("<IIQ", 0x74726172, 1, 7),)
MEETING = (b"?meeting-1", b"?m", b"!")


def hellos(node):
    """Adoptions by an old daemon, which no worker accepts: node, GPU, epoch, run directory, device memory."""
    name = node.encode()
    return (b"\x0a" + bytes([len(name)]) + name + b"\x10\x00\x18\x01\x22\x04/tmp\x28\x01",
            b"\x0a" + bytes([len(name)]) + name + b"\x18\x01")


def mutated(frame, chance):
    frame = bytearray(frame)
    for _ in range(chance.choice((0, 1, 1, 2, 8))):
        what, at = chance.randrange(4), chance.randrange(len(frame) + 1)
        if what == 0 and at < len(frame):
            frame[at] ^= 1 << chance.randrange(8)
        elif what == 1:
            frame[at:at] = chance.randbytes(chance.choice((1, 4, 300)))
        elif what == 2:
            del frame[at:at + chance.randrange(1, 9)]
        elif at < len(frame):
            frame[at] = chance.choice((0, 0xFF, 0x80, 10))
    return bytes(frame)


class Frames(E2eTest):
    def sockets(self):
        """The sockets of every daemon and of every worker."""
        found = []
        for daemon in self.everyone:
            found.append(Operations(daemon.address("operations")))
            found.append(Tensors(f"127.0.0.1:{tensor_port(daemon)}"))
            run = daemon.settings["run"]
            for path in sorted(glob.glob(f"{run}/*.sock*")):
                if not pathlib.Path(path).is_socket():  # a worker's meter page lies beside its socket
                    continue
                if "/worker-" not in path:
                    found.append(Unix(path, "arena", ARENA))
                elif path.endswith(".sock"):
                    found.append(Unix(path, "adoption", hellos(daemon.directory.name)))
                elif path.endswith(".b"):
                    found.append(Unix(path, "meeting", MEETING))
                else:
                    found.append(Unix(path, "outputs", ARENA))
        members = self.gateways[0].http.get("/v2/troupe/cluster").good().json["members"]
        found += [Actor(address) for address in [self.manager_at] + [one["member"]["address"] for one in members]]
        kinds = {one.kind for one in found}
        self.assertLessEqual({"actor", "operations", "tensors", "arena", "adoption", "outputs"}, kinds)
        return found

    def start_everything(self, hosts=True):
        """`hosts`: each daemon is told that it is alone on a host of its own."""
        def start(name, role, **settings):
            return self.start(name, role, **settings, **({"host_id": f"host-{name}"} if hosts else {}))
        manager = start("manager", "manager")
        self.manager_at = manager.address("manager")
        self.nodes = [start(f"node-{i}", "node", manager=self.manager_at) for i in range(2)]
        self.gateways = [start(f"gateway-{i}", "gateway", manager=self.manager_at) for i in range(2)]
        self.everyone = [manager, *self.nodes, *self.gateways]
        self.http = self.gateways[0].http
        eventually(lambda: self.http.get("/v2/health/ready").code == 200, "the front is ready")
        self.http.deploy("double", scale(2.0)).good()
        self.x = {"x": np.ones((1, 4), np.float32)}
        eventually(lambda: self.http.ask("double", self.x).code == 200, "the function is served")
        eventually(lambda: all(node.workers() for node in self.nodes), "the workers run")

    def p99(self, requests):
        """The milliseconds of requests that are sent one after the other on one connection."""
        line = http.client.HTTPConnection(self.http.host, self.http.port, timeout=60)
        body, times = infer_body(self.x), []
        for _ in range(requests):
            begin = time.perf_counter()
            line.request("POST", "/v2/models/double/infer", body)
            answer = line.getresponse()
            self.assertEqual(answer.status, 200, answer.read())
            answer.read()
            times.append(1000 * (time.perf_counter() - begin))
        line.close()
        return sorted(times)[len(times) * 99 // 100]

    def attack(self, sockets, frames, chance):
        sent, begin = 0, time.monotonic()
        while sent < frames:
            if RATE > 0 and (ahead := sent / RATE - (time.monotonic() - begin)) > 0.01:
                time.sleep(ahead)
            target = sockets[sent % len(sockets)]
            try:
                with target.connect() as line:
                    for frame in target.frames(chance):
                        sent += 1
                        target.send(line, frame, chance)
            except OSError:  # the other end closed first
                sent += 1

    def counted(self, daemon, kind):
        text = daemon.operations.get("/metrics").body.decode()
        found = [line for line in text.splitlines() if line.startswith(REFUSED[kind])]
        return float(found[0].split()[-1]) if found else 0

    def test_every_process_lives_and_serves(self):
        self.start_everything()
        sockets = self.sockets()
        pids = {f"{daemon.directory.name} {what}": pid for daemon in self.everyone
                for what, pid in [("", daemon.process.pid), *daemon.workers().items()]}
        samples = 2000 if RATE > 0 else 300
        usual = self.p99(samples)
        before = {name: (rss(pid), descriptors(pid)) for name, pid in pids.items()}

        chance = random.Random(SEED)
        for target in sockets:
            if target.kind != "actor":
                continue
            for kind in (1, 0, 2):
                for length in (0xFFFFFFFF, 0):
                    self.attack_with(target, header(kind, length))
            for _ in range(25):
                self.attack_with(target, target.hello(chance), header(2, 0xFFFFFFFF))
        begin, meanwhile = time.monotonic(), []
        # Another process attacks, so that it does not take turns with the client whose requests are timed here.
        attacker = multiprocessing.get_context("fork").Process(target=self.attack, args=(sockets, FRAMES, chance))
        attacker.start()
        while attacker.is_alive():
            meanwhile.append(self.p99(samples))
        attacker.join()
        self.assertEqual(attacker.exitcode, 0, "every frame was sent")
        # There are more silent connections than any socket keeps, and other clients are served all the same.
        idle = [target.connect() for target in sockets for _ in range(60)]
        meanwhile.append(self.p99(samples))
        seconds = time.monotonic() - begin

        self.assertEqual(self.http.infer("double", self.x), {"y": [2.0] * 4})
        for daemon in self.everyone:
            self.assertIsNone(daemon.process.poll(), f"{daemon.directory.name} has ended")
            for kind in REFUSED:
                eventually(lambda daemon=daemon, kind=kind: self.counted(daemon, kind) > 0,
                           f"{daemon.directory.name} counts what it refused at {kind} sockets")
        for line in idle:
            line.close()
        self.assertEqual([node.workers()[0] for node in self.nodes],
                         [pid for name, pid in pids.items() if name.endswith(" 0")], "the workers are the same ones")
        for name, pid in pids.items():
            self.assertLess(rss(pid), before[name][0] + ROOM, name)
            eventually(lambda pid=pid, name=name: descriptors(pid) <= before[name][1] + 16, f"{name} closes what it got")
        states = self.http.members()
        self.assertEqual(set(states.values()), {"ALIVE"}, states)
        grown = max((rss(pid) - before[name][0]) >> 20 for name, pid in pids.items())
        now = sorted(meanwhile)[len(meanwhile) // 2]
        print(f"{FRAMES} frames in {seconds:.0f} s; p99 of others {usual:.2f} ms before, {now:.2f} ms meanwhile (median of "
              f"{len(meanwhile)} rounds); grown by {grown} MiB at most", file=sys.stderr)
        if RATE > 0:
            self.assertLessEqual(now, 2 * usual)

    def attack_with(self, target, *frames):
        """Sends and hangs up; the other end may close first."""
        try:
            with target.connect() as line:
                for frame in frames:
                    line.sendall(frame)
        except OSError:
            pass

    def test_a_loopback_cluster_opens_no_port_for_tensors(self):
        """One machine has no other host that could ask."""
        self.start_everything(hosts=False)
        for daemon in self.everyone:
            self.assertEqual(listening(daemon.process.pid), named_ports(daemon), daemon.directory.name)


def named_ports(daemon):
    return {daemon.operations.port} | ({daemon.http.port} if "gateway" in daemon.settings["role"] else set())


def tensor_port(daemon):
    """The port of the process that no option names."""
    port, = listening(daemon.process.pid) - named_ports(daemon)
    return port


def listening(pid):
    """The TCP ports at which a process listens, at any address."""
    own = set()
    for entry in glob.glob(f"/proc/{pid}/fd/*"):
        try:
            own.add(os.readlink(entry))
        except OSError:
            pass
    ports = set()
    for table in ("tcp", "tcp6"):
        with open(f"/proc/{pid}/net/{table}") as lines:
            for words in map(str.split, lines):
                if words[3] == "0A" and f"socket:[{words[9]}]" in own:
                    ports.add(int(words[1].rpartition(":")[2], 16))
    return ports


def option(name, usual):
    if name not in sys.argv:
        return usual
    place = sys.argv.index(name)
    value = int(sys.argv[place + 1])
    del sys.argv[place:place + 2]
    return value


if __name__ == "__main__":
    FRAMES = option("--frames", FRAMES)
    SEED = option("--seed", SEED)
    RATE = option("--rate", RATE)
    main()
