"""Frames and handshakes that claim more than they send or make no sense, and connections that say nothing, at every
socket of a cluster on one machine: actor ports, operations ports, those at which other hosts fetch tensors, the sockets
that hand out arenas, those at which workers are adopted and at which broadcasts meet. The actor ports are Unix sockets
here; those over TCP are attacked by network_frames_test.py.

frames_test.py [--frames N] [--seed N] [--rate N]: see under_attack.py.
"""
import glob
import pathlib

from harness import main
from attacked_sockets import ARENA, MEETING, LocalActor, Operations, Tensors, Unix, adoptions, header, listening
from under_attack import UnderAttack


class Frames(UnderAttack):
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
                    found.append(Unix(path, "adoption", adoptions(daemon.directory.name)))
                elif path.endswith(".b"):
                    found.append(Unix(path, "meeting", MEETING))
                else:
                    found.append(Unix(path, "outputs", ARENA))
        found += [LocalActor(address) for address in self.actor_addresses()]
        kinds = {one.kind for one in found}
        self.assertLessEqual({"actor", "operations", "tensors", "arena", "adoption", "outputs"}, kinds)
        return found

    def start_everything(self, hosts=True):
        """`hosts`: each daemon is told that it is alone on a host of its own."""
        def start(name, role, **settings):
            return self.start(name, role, **settings, **({"host_id": f"host-{name}"} if hosts else {}))
        manager = start("manager", "manager")
        at = manager.address("manager")
        self.serve(manager, [start(f"node-{i}", "node", manager=at) for i in range(2)],
                   [start(f"gateway-{i}", "gateway", manager=at) for i in range(2)])

    def test_every_process_lives_and_serves(self):
        self.start_everything()
        sockets = self.sockets()

        def claims(chance):
            for target in sockets:
                if target.kind != "actor":
                    continue
                for kind in (1, 0, 2):
                    for length in (0xFFFFFFFF, 0):
                        self.send(target, header(kind, length))
                for _ in range(25):
                    self.send(target, target.hello(chance), header(2, 0xFFFFFFFF))
        self.withstand(sockets, begin_with=claims)

    def send(self, target, *frames):
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


if __name__ == "__main__":
    main()
