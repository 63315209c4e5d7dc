"""The faults of the network: cut, lossy, slow."""
import socket
import time

from .bench import ENDED
from .load import SMALL
from .prober import Prober
from .site import ALL, GATEWAYS, MANAGER, NODES, PATIENCE


def _cut(bench, name, others, way):
    bench.begin(name)
    bench.site.network.partition(name, others, way)
    try:
        bench.last(1.5 + 1.5 * bench.random.random())
    finally:
        bench.site.network.heal()


def cut_node_from_manager(bench):
    node = bench.random.choice(NODES)
    _cut(bench, node, [MANAGER], "both")


def cut_node_from_all(bench):
    node = bench.random.choice(NODES)
    _cut(bench, node, [name for name in ALL if name != node], "both")
    bench.noticed(node, ENDED)


def cut_one_way(bench):
    node = bench.random.choice(NODES)
    _cut(bench, node, [name for name in ALL if name != node], bench.random.choice(("in", "out")))


def cut_gateway_from_nodes(bench):
    gateway = bench.random.choice(GATEWAYS)
    _cut(bench, gateway, bench.random.sample(NODES, 2), "both")


def lose_packets(bench):
    name = bench.random.choice(ALL)
    bench.begin(name)
    bench.site.network.lose(name, 5)
    try:
        bench.last(3.0)
    finally:
        bench.site.network.heal()


def _delay(bench, names, milliseconds, jitter):
    """What takes long is not lost: meanwhile every function is answered, and nothing comes sooner than it can."""
    bench.begin(", ".join(names))
    bench.site.network.delay(names, milliseconds, jitter, bench.random.randrange(1 << 30))
    try:
        first = min(_connect_seconds(bench, name) for name in names)
        assert first >= 2 * milliseconds / 1e3, f"a connection to {names} is there after {first:g} s: nothing is delayed"
        answered = Prober(bench.site, bench.history, sorted(SMALL)).start().wait()
        assert len(answered) == len(SMALL), f"with packets delayed, only {sorted(answered)} are answered"
        bench.last(2.0)
        bench.note["slow_answer_ms"] = max(answered.values()) * 1e3
    finally:
        bench.note["packets_delayed"] = float(bench.site.network.hasten())
    bench.note["taken_for_dead"] = float(sum(bench.watch.first(name, bench.began, ENDED) is not None for name in names))


def _connect_seconds(bench, name):
    host, _, port = bench.site.up[name].address("operations").rpartition(":")
    began = time.monotonic()
    socket.create_connection((host, int(port)), timeout=PATIENCE).close()
    return time.monotonic() - began


def delay_packets(bench):
    """One member is as far away as another continent is, or farther."""
    _delay(bench, [bench.random.choice(ALL)], bench.random.randrange(50, 150), 100)


def delay_all_packets(bench):
    """Each packet between two members is delayed at both."""
    _delay(bench, list(ALL), bench.random.randrange(10, 30), 20)


FAULTS = {
    "cut-node-from-manager": cut_node_from_manager, "cut-node-from-all": cut_node_from_all, "cut-one-way": cut_one_way,
    "cut-gateway-from-nodes": cut_gateway_from_nodes, "lose-packets": lose_packets,
    "delay-packets": delay_packets, "delay-all-packets": delay_all_packets,
}
