"""Frames that claim more than they send, and connections that say nothing, at every actor port of a cluster.

frames_test.py [--frames N]: how many mutated frames each port gets (default 2,000).
"""
import random
import socket
import struct
import sys

import numpy as np

from harness import E2eTest, eventually, main
from harness.networks import scale

FRAMES = 2000
KINDS = range(8)
ROOM = 64 << 20


def header(kind, length, rest=b"\0" * 24):
    return struct.pack(">BBBBI", kind, 0, 0, 0, length) + rest


def rss(daemon):
    with open(f"/proc/{daemon.process.pid}/statm") as statm:
        return int(statm.read().split()[1]) * 4096


def connect(address):
    """To the actor port of a daemon on this machine: loopback addresses are abstract Unix sockets."""
    line = socket.socket(socket.AF_UNIX)
    line.settimeout(10)
    line.connect(f"\0troupe/{address[0]}:{address[1]}")
    return line


def say(address, *pieces):
    """Sends and hangs up; the other end may close first."""
    try:
        with connect(address) as line:
            for piece in pieces:
                line.sendall(piece)
    except OSError:
        pass


def mutated(chance):
    hello = bytearray(header(1, 32) + chance.randbytes(32))
    frame = bytearray(header(chance.choice(KINDS), chance.choice((0, 1, 40, 1 << 16, 1 << 26, 0xFFFFFFFF)),
                             chance.randbytes(24)) + chance.randbytes(chance.randrange(64)))
    if chance.random() < 0.5:
        frame[chance.randrange(len(frame))] ^= 1 << chance.randrange(8)
    if chance.random() < 0.3:
        hello[chance.randrange(len(hello))] ^= 1 << chance.randrange(8)
    return (bytes(frame),) if chance.random() < 0.3 else (bytes(hello), bytes(frame))


class Frames(E2eTest):
    def test_every_member_lives_and_serves(self):
        manager = self.start("manager", "manager")
        at = manager.address("manager")
        nodes = [self.start(f"node-{i}", "node", manager=at) for i in range(2)]
        gateways = [self.start(f"gateway-{i}", "gateway", manager=at) for i in range(2)]
        everyone = [manager, *nodes, *gateways]
        http = gateways[0].http
        eventually(lambda: http.get("/v2/health/ready").code == 200, "the front is ready")
        http.deploy("double", scale(2.0)).good()
        x = {"x": np.ones((1, 4), np.float32)}
        eventually(lambda: http.ask("double", x).code == 200, "the function is served")
        members = http.get("/v2/troupe/cluster").good().json["members"]
        ports = [at] + [entry["member"]["address"] for entry in members]
        ports = [(host, int(port)) for host, _, port in (address.rpartition(":") for address in ports)]
        self.assertEqual(len(ports), 5)
        before = [rss(daemon) for daemon in everyone]

        chance = random.Random(1)
        for port in ports:
            for kind in (1, 0, 2):
                for length in (0xFFFFFFFF, 0):
                    say(port, header(kind, length))
            for _ in range(25):
                say(port, header(1, 32) + b"n" * 32, header(2, 0xFFFFFFFF))
            for _ in range(FRAMES // len(ports)):
                say(port, *mutated(chance))
        idle = [connect(port) for port in ports for _ in range(100)]

        self.assertEqual(http.infer("double", x), {"y": [2.0] * 4})
        for daemon, was in zip(everyone, before):
            self.assertIsNone(daemon.process.poll(), f"{daemon.directory.name} has ended")
            self.assertLess(rss(daemon), was + ROOM, daemon.directory.name)

            def counted(daemon=daemon):
                text = daemon.operations.get("/metrics").body.decode()
                return all(f'troupe_peer_connections_refused_total{{reason="{reason}"}}' in text
                           for reason in ("broken_frame", "crowded_out"))
            eventually(counted, f"{daemon.directory.name} counts what it refused")
        for line in idle:
            line.close()
        states = http.members()
        self.assertEqual(set(states.values()), {"ALIVE"}, states)


if __name__ == "__main__":
    if "--frames" in sys.argv:
        place = sys.argv.index("--frames")
        FRAMES = int(sys.argv[place + 1])
        del sys.argv[place:place + 2]
    main()
