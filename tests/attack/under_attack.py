"""A cluster that serves while another process attacks its sockets: what must be true meanwhile and afterwards.

Each test that uses it takes [--frames N] [--seed N] [--rate N]: how many frames in all (default 4,000, which is a few
seconds), and how many each second at most (default 0: as many as the attacker can send, which takes a core of the
machine that the daemons run on). With a rate the test also asserts that the 99th percentile of other clients' requests
is at most twice what it was; without one the attacker takes the processor from the daemons, and that is only told.
"""
import glob
import http.client
import multiprocessing
import random
import sys
import time

import numpy as np

from harness import E2eTest, eventually
from harness.client import infer_body
from harness.networks import scale
from options import option

FRAMES = option("--frames", 4000)
SEED = option("--seed", 1)
RATE = option("--rate", 0)
ROOM = 64 << 20  # bytes by which a process may grow
SILENT = 60  # connections to each socket that say nothing


def memory(pid):
    """(bytes that the process has now, the most that it has had)."""
    with open(f"/proc/{pid}/status") as status:
        sizes = dict(line.split(":", 1) for line in status)
    return tuple(int(sizes[key].split()[0]) << 10 for key in ("VmRSS", "VmHWM"))


def descriptors(pid):
    return len(glob.glob(f"/proc/{pid}/fd/*"))


class UnderAttack(E2eTest):
    def serve(self, manager, nodes, gateways):
        """The daemons are told, and a function is deployed and answers."""
        self.manager_at, self.nodes = manager.address("manager"), nodes
        self.everyone = [manager, *nodes, *gateways]
        self.http = gateways[0].http
        eventually(lambda: self.http.get("/v2/health/ready").code == 200, "the front is ready")
        self.http.deploy("double", scale(2.0)).good()
        self.x = {"x": np.ones((1, 4), np.float32)}
        eventually(lambda: self.http.ask("double", self.x).code == 200, "the function is served")
        eventually(lambda: all(node.workers() for node in nodes), "the workers run")

    def actor_addresses(self):
        members = self.http.get("/v2/troupe/cluster").good().json["members"]
        return [self.manager_at] + [one["member"]["address"] for one in members]

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

    @staticmethod
    def attack(sockets, frames, chance):
        sent, begin = 0, time.monotonic()
        while sent < frames:
            if RATE > 0 and (ahead := sent / RATE - (time.monotonic() - begin)) > 0.01:
                time.sleep(ahead)
            target = sockets[chance.randrange(len(sockets))]
            try:
                with target.connect() as line:
                    sent += target.strike(line, chance)
            except OSError:  # the other end closed first
                sent += 1

    def counted(self, daemon, metric):
        text = daemon.operations.get("/metrics").body.decode()
        found = [line for line in text.splitlines() if line.startswith(metric)]
        return float(found[0].split()[-1]) if found else 0

    def withstand(self, sockets, begin_with=lambda chance: None, beside_silent_ones=lambda: None):
        """Every daemon and worker lives, is as large as it was, and serves other clients. `begin_with`: what is sent
        first. `beside_silent_ones`: what works while many connections to each socket say nothing."""
        pids = {f"{daemon.directory.name} {what}": pid for daemon in self.everyone
                for what, pid in [("", daemon.process.pid), *daemon.workers().items()]}
        samples = 2000 if RATE > 0 else 300
        usual = self.p99(samples)
        before = {name: (*memory(pid), descriptors(pid)) for name, pid in pids.items()}

        chance = random.Random(SEED)
        begin_with(chance)
        begin, meanwhile = time.monotonic(), []
        # Another process attacks, so that it does not take turns with the client whose requests are timed here.
        attacker = multiprocessing.get_context("fork").Process(target=self.attack, args=(sockets, FRAMES, chance))
        attacker.start()
        while attacker.is_alive():
            meanwhile.append(self.p99(samples))
        attacker.join()
        self.assertEqual(attacker.exitcode, 0, "every frame was sent")
        idle = []
        self.addCleanup(lambda: [line.close() for line in idle])
        idle += [target.connect() for target in sockets for _ in range(SILENT)]
        meanwhile.append(self.p99(samples))
        beside_silent_ones()
        seconds = time.monotonic() - begin

        self.assertEqual(self.http.infer("double", self.x), {"y": [2.0] * 4})
        for daemon in self.everyone:
            self.assertIsNone(daemon.process.poll(), f"{daemon.directory.name} has ended")
            # Its log tells of strangers once a second; nothing else that they send makes it write.
            self.assertEqual(list(daemon.lines.queue), [], f"{daemon.directory.name} has printed what a stranger sent")
            for metric in {metric for target in sockets for metric in target.refused}:
                eventually(lambda daemon=daemon, metric=metric: self.counted(daemon, metric) > 0,
                           f"{daemon.directory.name} counts what it refused as {metric}")
        for line in idle:
            line.close()
        self.assertEqual([node.workers()[0] for node in self.nodes],
                         [pid for name, pid in pids.items() if name.endswith(" 0")], "the workers are the same ones")
        grown = jump = 0
        for name, pid in pids.items():
            usual_size, largest, open_files = before[name]
            now, peak = memory(pid)
            grown, jump = max(grown, now - usual_size), max(jump, peak - usual_size)
            # Memory that was taken in the middle of the attack and given back counts, too.
            self.assertLessEqual(peak, max(largest, usual_size + ROOM), f"the size of {name}")
            eventually(lambda pid=pid, most=open_files + 16: descriptors(pid) <= most, f"{name} closes what it got")
        states = self.http.members()
        self.assertEqual(set(states.values()), {"ALIVE"}, states)
        late = sorted(meanwhile)[len(meanwhile) // 2]
        print(f"{FRAMES} frames in {seconds:.0f} s; p99 of others {usual:.2f} ms before, {late:.2f} ms meanwhile "
              f"(median of {len(meanwhile)} rounds); grown by {grown >> 20} MiB at most, for a moment by "
              f"{jump >> 20} MiB", file=sys.stderr)
        if RATE > 0:
            self.assertLessEqual(late, 2 * usual)
