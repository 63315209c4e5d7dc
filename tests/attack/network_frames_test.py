"""The ports of actors and of tensors over TCP, at an address of this machine that is not loopback: with mutual TLS they
are sent mutated bytes, handshakes and records, and behind a good handshake what they are sent without certificates:
mutated frames, and mutated conversations of a real shell.

network_frames_test.py [--frames N] [--seed N] [--rate N]: see under_attack.py; so many frames for each of the two.
"""
import socket
import threading
import unittest

from harness import main
from harness.certificates import ADDRESS, Authority
from harness.shell import Shell
from attacked_sockets import NetworkActor, Tensors, TlsActor, TlsTensors, listening
from under_attack import UnderAttack


class Recorder:
    """A port that hands on each connection to another one, and keeps what the dialling ends have sent."""

    def __init__(self, address):
        host, _, port = address.rpartition(":")
        self.target, self.said = (host, int(port)), []
        self.door = socket.create_server((host, 0))
        self.address = f"{host}:{self.door.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self):
        while True:
            try:
                near, _ = self.door.accept()
            except OSError:
                return
            far, said = socket.create_connection(self.target), bytearray()
            self.said.append(said)
            threading.Thread(target=self._carry, args=(near, far, said), daemon=True).start()
            threading.Thread(target=self._carry, args=(far, near, bytearray()), daemon=True).start()

    @staticmethod
    def _carry(source, sink, said):
        try:
            while piece := source.recv(65536):
                said += piece
                sink.sendall(piece)
        except OSError:
            pass
        sink.close()

    def close(self):
        self.door.close()


@unittest.skipIf(ADDRESS is None, "this machine has no address that is not loopback")
class NetworkFrames(UnderAttack):
    def start_everything(self, trust):
        """`trust` answers the settings and switches with which the daemon of a role may listen at the address."""
        def start(role, **settings):
            more, switches = trust(role)
            return self.start(role, role, switches, host_id=f"host-{role}", listen=f"{ADDRESS}:0", **settings, **more)
        manager = start("manager", manager=f"{ADDRESS}:0")
        at = manager.address("manager")
        self.serve(manager, [start("node", manager=at)], [start("gateway", manager=at)])

    def conversations(self, manager):
        """What a shell has said to a manager without certificates."""
        recorder = Recorder(manager)
        shell = Shell(recorder.address, self.directory)
        for words in (("function", "list"), ("cluster", "status")):
            shell.run(*words, "--insecure-network")
        recorder.close()
        said = [bytes(one) for one in recorder.said]
        self.assertTrue(len(said) >= 2 and all(len(one) > 100 for one in said), said)
        return said

    def tensor_addresses(self, actors):
        """The ports at the address that are not of actors."""
        for daemon in self.everyone:
            others = {daemon.operations.port} | {int(address.rpartition(":")[2]) for address in actors}
            if "gateway" in daemon.settings["role"]:
                others.add(daemon.http.port)
            port, = listening(daemon.process.pid) - others
            yield f"{ADDRESS}:{port}"

    def test_ports_with_certificates(self):
        authority, other = Authority(self.directory), Authority(self.directory, "other")
        for role in ("manager", "node", "gateway"):
            authority.issue(role, role)
        authority.issue("ann", "admin")
        authority.issue("stolen", "node")
        other.issue("foreign", "node")
        self.start_everything(lambda role: ({"tls_dir": authority.folder(role)}, ()))
        trust = (authority.folder("stolen"), other.folder("foreign"))
        open_manager = self.start("open", "manager", ("insecure-network",), manager=f"{ADDRESS}:0")
        said = self.conversations(open_manager.address("manager"))
        open_manager.terminate()
        actors = self.actor_addresses()
        shell = Shell(self.manager_at, self.directory)
        shell.environment["TROUPE_TLS_DIR"] = str(authority.folder("ann"))
        self.withstand([TlsActor(address, *trust, said) for address in actors] +
                       [TlsTensors(address, *trust) for address in self.tensor_addresses(actors)],
                       beside_silent_ones=lambda: self.assertIn("double", shell.text("function", "list")))

    def test_ports_without_certificates(self):
        self.start_everything(lambda role: ({}, ("insecure-network",)))
        said = self.conversations(self.manager_at)
        actors = self.actor_addresses()
        shell = Shell(self.manager_at, self.directory)
        self.withstand([NetworkActor(address, said) for address in actors] +
                       [Tensors(address) for address in self.tensor_addresses(actors)],
                       beside_silent_ones=lambda: self.assertIn(
                           "double", shell.text("function", "list", "--insecure-network")))


if __name__ == "__main__":
    main()
