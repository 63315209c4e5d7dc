"""The faults of the disks: full, and the store's log damaged or torn."""
import time

from harness import StartFailed, eventually, processes
from harness.networks import dense, scale

from .history import ANSWERED
from .load import SMALL, TALLY, Caller
from .prober import Prober
from .site import DISK_MIB, GATEWAYS, MANAGER, NODES


def fill_disk(bench):
    """The manager's disk is full: what cannot be kept is refused, what is known is served."""
    client = bench.site.http(GATEWAYS[0])
    bench.begin("disk")
    with bench.site.full(MANAGER):
        answer = client.deploy("too-large", dense(8)[0])
        assert answer.code in (503, 507), f"a deployment on a full disk: {answer.code} {answer.body[:200]!r}"
    eventually(lambda: client.deploy("after-full", scale(3)).code == 200, "with room, functions are deployed again")
    client.remove("after-full").good()


def fill_node_disk(bench):
    """The disk of the node that keeps the state is full: its runs are refused, since they could not be kept; all else goes on."""
    [home] = eventually(lambda: bench.adopters(TALLY), "the function with state has its node")
    _fill_nodes(bench, [home])


def fill_all_node_disks(bench):
    """A function that is deployed meanwhile is on the manager's disk; it is served when there is room on a node's."""
    _fill_nodes(bench, list(NODES))


def _fill_nodes(bench, nodes):
    client, name = bench.site.http(GATEWAYS[0]), "deployed-on-full"
    bench.begin(", ".join(nodes))
    caller = Caller(bench.site, bench.history)
    with bench.site.full(*nodes):
        _refused(bench)
        workers = bench.site.workers(nodes[0])
        processes.kill(workers[0])  # whose place is taken by one that finds no room either
        bench.kills += 1
        answered = Prober(bench.site, bench.history, sorted(SMALL)).start().wait()
        assert len(answered) == len(SMALL), f"with a node's disk full, only {sorted(answered)} are answered"
        eventually(lambda: bench.site.workers(nodes[0]).get(0, workers[0]) != workers[0], f"{nodes[0]} has a new worker")
        client.deploy(name, scale(11)).good()
        if len(nodes) < len(NODES):
            operation = caller.small(name, 11, 5)
            assert operation.outcome == ANSWERED, f"where there is room, {name} is not served: {operation.trouble}"
    room = time.monotonic()
    for function, factor in ((name, 11), *SMALL.items()):
        operation = caller.small(function, factor, 5)
        assert operation.outcome == ANSWERED, f"with room, {function} is not served: {operation.trouble}"
    eventually(lambda: bench.history.operations("tally")[-1].ended > room, "with room, runs of a state go on")
    bench.note["state_again_ms"] = (bench.history.operations("tally")[-1].ended - room) * 1e3
    client.remove(name).good()


def _refused(bench):
    """Waits until a run whose state cannot be kept was refused, and looks how."""
    told = eventually(lambda: [trouble for _, kind, _, trouble in bench.history.failed_tries(bench.began)
                               if kind == "tally" and trouble[:3].isdigit()], "a run whose state cannot be kept is refused")
    assert all(trouble.startswith("503") and "could not be kept" in trouble for trouble in told), f"on a full disk: {told}"


def _kill_manager_for_its_log(bench):
    """The newest file of its store's log: the records that were acknowledged last are only there."""
    bench.begin(MANAGER)
    bench.site.kill(MANAGER)
    bench.kills += 1
    return max(bench.site.store.glob("*.log"), key=lambda path: path.stat().st_mtime)


def damage_record(bench):
    """A bit of an acknowledged record flips: the manager must not start without the record. An operator has a copy."""
    newest = _kill_manager_for_its_log(bench)
    copy = newest.read_bytes()
    records = len(copy.rstrip(b"\0"))  # behind them is room for the next ones
    if records > 2:  # an empty log has no record to damage
        where = records // 2  # behind it there are acknowledged ones
        newest.write_bytes(copy[:where] + bytes([copy[where] ^ 0x10]) + copy[where + 1:])
        try:
            bench.site.start(MANAGER)
        except StartFailed as refused:
            assert refused.code == 2 and "troupe store restore" in str(refused), f"the refusal does not say what to do: {refused}"
        else:
            raise AssertionError("a manager starts on a store whose acknowledged record is damaged")
        newest.write_bytes(copy)
    bench.restart_manager()


def tear_last_record(bench):
    """The manager dies while it writes: half a record lies behind the acknowledged ones."""
    newest = _kill_manager_for_its_log(bench)
    with newest.open("r+b") as log:  # a head that promises more than there is
        log.seek(len(log.read().rstrip(b"\0")))
        log.write(bench.random.randbytes(4) + (300).to_bytes(2, "little") + b"\x01" + bench.random.randbytes(90))
    try:
        bench.restart_manager()
    except StartFailed as failed:
        raise AssertionError(f"a torn last record keeps the manager from starting: {failed}") from None


# These need small disks.
FULL = {"fill-disk": fill_disk, "fill-node-disk": fill_node_disk, "fill-all-node-disks": fill_all_node_disks}
DAMAGED = {"tear-last-record": tear_last_record, "damage-record": damage_record}
