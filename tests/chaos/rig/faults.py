"""The faults that the test injects. A fault is a function of (Bench): it breaks something, waits until that is noticed or for as
long as the fault lasts by its plan, and mends what a supervisor or an operator would mend. Health is waited for by the
caller. A fault puts its measurements into `bench.note`."""
import os
import signal
import time

from harness import HttpError, StartFailed, eventually, processes
from harness.networks import dense, scale
from harness.shell import Shell

from .load import SMALL
from .prober import Prober
from .site import ALL, GATEWAYS, GPUS, MANAGER, NODES, PATIENCE

GONE = ("SUSPECT", "DEAD", "LEFT")
ENDED = ("DEAD", "LEFT")


class Bench:
    """What one fault works with. `note`: {figure: milliseconds}."""

    def __init__(self, site, history, watch, random):
        self.site, self.history, self.watch, self.random = site, history, watch, random
        self.note, self.kills, self.target, self.began = {}, 0, "", 0.0

    def begin(self, target):
        self.target, self.began = target, time.monotonic()
        self.history.mark("fault", target)

    def last(self, seconds):
        """Lets the fault go on for a time."""
        time.sleep(seconds)

    def noticed(self, member, states=GONE):
        """Waits until the member was seen in one of the states."""
        at = eventually(lambda: self.watch.first(member, self.began, states), f"{member} is noticed ({self.target})")
        self.note["detection_ms"] = (at - self.began) * 1e3
        if member in NODES and states == ENDED:
            self.note["node_detection_ms"] = self.note["detection_ms"]

    def resident_on(self, place):
        """The functions whose models are on this GPU; first those whose models are on no other GPU."""
        found = []
        for name in sorted(SMALL):
            try:
                places = self.site.http(GATEWAYS[0]).function(name).get("resident_on", [])
            except (HttpError, OSError):
                continue
            if place in places:
                found.append((len(places), name))
        return [name for _, name in sorted(found)]


# --- workers ---

def _busy_gpu(bench):
    """(node, GPU, functions): a random GPU that holds models."""
    places = [(node, gpu) for node in NODES for gpu in range(GPUS)]
    bench.random.shuffle(places)
    for node, gpu in places:
        functions = bench.resident_on(f"{node}/{gpu}")
        if functions:
            break
    return node, gpu, functions


def kill_worker(bench):
    node, gpu, functions = _busy_gpu(bench)
    pid = bench.site.workers(node)[gpu]
    bench.begin(f"{node}/{gpu}")
    os.kill(pid, signal.SIGKILL)
    bench.kills += 1
    first = Prober(bench.site, bench.history, functions).start().wait()
    if first:
        # The models are small: their swaps, which the goal leaves out, are within this figure.
        bench.note["worker_recovery_ms"] = min(first.values()) * 1e3
        bench.note["worker_last_model_ms"] = max(first.values()) * 1e3
    eventually(lambda: bench.site.workers(node).get(gpu, pid) != pid, f"{node}/{gpu} has a new worker")
    eventually(lambda: _gpu_state(bench, node, gpu) == "ready", f"the worker of {node}/{gpu} is up")
    bench.note["worker_respawn_ms"] = (time.monotonic() - bench.began) * 1e3


def _gpu_state(bench, node, gpu):
    status = bench.site.status()
    return status and status[node]["gpus"][gpu]["state"]


def hang_worker(bench):
    """A stopped worker lives and answers nothing, as on a GPU that has hung; the watchdog kills it because requests wait.
    """
    node, gpu, functions = _busy_gpu(bench)
    pid = bench.site.workers(node)[gpu]
    bench.begin(f"{node}/{gpu}")
    os.kill(pid, signal.SIGSTOP)

    def killed():
        Prober(bench.site, bench.history, functions).start().wait()
        return not processes.alive(pid)
    try:
        eventually(killed, "the watchdog kills the worker", 20)
        bench.note["detection_ms"] = (time.monotonic() - bench.began) * 1e3
    except AssertionError:  # other GPUs served its requests, and an idle worker that stands still does no harm
        os.kill(pid, signal.SIGCONT)


# --- daemons ---

def kill_node_daemon(bench):
    """The workers live on, and the next daemon adopts them with what they hold."""
    node = bench.random.choice(NODES)
    workers = bench.site.workers(node)
    bench.begin(node)
    bench.site.kill(node)
    bench.kills += 1
    bench.noticed(node)
    bench.site.start(node)
    bench.note["restart_ms"] = (time.monotonic() - bench.began) * 1e3 - bench.note["detection_ms"]
    assert bench.site.workers(node) == workers, f"{node} lost its workers: {workers}, now {bench.site.workers(node)}"


def kill_node(bench):
    node = bench.random.choice(NODES)
    lost = [name for name in SMALL if node in _adopters(bench, name)]
    bench.begin(node)
    bench.site.kill_node(node)
    bench.kills += 1 + GPUS
    probes = Prober(bench.site, bench.history, lost).start()
    bench.noticed(node, ENDED)
    first = probes.wait()
    if first:
        bench.note["node_takeover_ms"] = max(first.values()) * 1e3
    eventually(lambda: all(len([other for other in _adopters(bench, name) if other != node]) >= 2 for name in lost),
               f"the host copies of {node} are on the other nodes")
    bench.note["node_copies_ms"] = (time.monotonic() - bench.began) * 1e3
    bench.site.start(node)


def _adopters(bench, function):
    for gateway in GATEWAYS:
        try:
            return bench.site.http(gateway).function(function).get("adopted_by", [])
        except (HttpError, OSError):
            continue
    return []


def kill_gateway(bench):
    gateway = bench.random.choice(GATEWAYS)
    bench.begin(gateway)
    bench.site.kill(gateway)
    bench.kills += 1
    bench.noticed(gateway)
    bench.site.start(gateway)


def kill_manager(bench):
    bench.begin(MANAGER)
    bench.site.kill(MANAGER)
    bench.kills += 1
    _restart_manager(bench)


def _restart_manager(bench):
    began = time.monotonic()
    bench.site.start(MANAGER)
    bench.note["manager_restart_ms"] = (time.monotonic() - began) * 1e3
    bench.site.wait_members()
    bench.note["manager_members_ms"] = (time.monotonic() - began) * 1e3
    infers = [entry for entry in bench.history.failed_tries(bench.began) if entry[1] == "infer"]
    bench.note["manager_away_failed_tries"] = float(len(infers))


def kill_manager_and_node(bench):
    """Manager and node die together, so no process notices the node's death."""
    node = bench.random.choice(NODES)
    bench.begin(f"{MANAGER}, {node}")
    bench.site.kill(MANAGER)
    bench.site.kill_node(node)
    bench.kills += 2 + GPUS
    bench.site.start(node)
    bench.site.start(MANAGER)


def kill_everything(bench):
    bench.begin("all")
    bench.kills += bench.site.kill_everything()
    for name in ALL:
        bench.site.start(name)
    bench.note["restart_ms"] = (time.monotonic() - bench.began) * 1e3


def _stop(bench, name, seconds):
    """SIGSTOP: the daemon sends and reads nothing, and then goes on as if nothing had happened."""
    pid = bench.site.pid(name)
    bench.begin(name)
    os.kill(pid, signal.SIGSTOP)
    try:
        bench.last(seconds)
    finally:
        os.kill(pid, signal.SIGCONT)


def stop_node(bench):
    node = bench.random.choice(NODES)
    _stop(bench, node, 1.5 + bench.random.random())
    bench.noticed(node, ENDED)


def stall_node(bench):
    """A pause that is too short to count as a death."""
    node = bench.random.choice(NODES)
    _stop(bench, node, 0.3)
    bench.note["taken_for_dead"] = float(bench.watch.first(node, bench.began, ENDED) is not None)


def stop_gateway(bench):
    _stop(bench, bench.random.choice(GATEWAYS), 1.0 + bench.random.random())


def stop_manager(bench):
    _stop(bench, MANAGER, 1.0 + bench.random.random())


# --- the network ---

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


# --- the disk ---

def fill_disk(bench):
    """The manager's disk is full: what cannot be kept is refused, what is known is served."""
    filler = bench.site.disk / "filler"
    client = bench.site.http(GATEWAYS[0])
    bench.begin("disk")
    try:
        with filler.open("wb", buffering=0) as file:
            try:
                while True:
                    file.write(bytes(1 << 16))
            except OSError:
                pass
        answer = client.deploy("too-large", dense(8)[0])
        assert answer.code in (503, 507), f"a deployment on a full disk: {answer.code} {answer.body[:200]!r}"
    finally:
        filler.unlink()
    eventually(lambda: client.deploy("after-full", scale(3)).code == 200, "with room, functions are deployed again")
    client.remove("after-full").good()


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
    _restart_manager(bench)


def tear_last_record(bench):
    """The manager dies while it writes: half a record lies behind the acknowledged ones."""
    newest = _kill_manager_for_its_log(bench)
    with newest.open("r+b") as log:  # a head that promises more than there is
        log.seek(len(log.read().rstrip(b"\0")))
        log.write(bench.random.randbytes(4) + (300).to_bytes(2, "little") + b"\x01" + bench.random.randbytes(90))
    try:
        _restart_manager(bench)
    except StartFailed as failed:
        raise AssertionError(f"a torn last record keeps the manager from starting: {failed}") from None


# --- faults that the cluster injects itself ---

def operator_plan(bench):
    """Three faults by `troupe chaos run`, as an operator of a staging cluster does it."""
    lines, worker = [], ("kill-worker", "hang-worker", "stall-link")
    for number, kind in enumerate(bench.random.sample((*worker, "stop-daemon", "cut-tensors"), 3)):
        member = bench.random.choice(NODES if kind in worker else (*NODES, *GATEWAYS))
        more = f"gpu: {bench.random.randrange(GPUS)}" if kind in worker else f"for: {bench.random.randrange(500, 2000)}ms"
        lines.append(f"  - {{at: {number}s, fault: {kind}, member: {member}, {more}}}")
    plan = bench.site.directory / "plan.yaml"
    plan.write_text("faults:\n" + "\n".join(lines) + f"\nsettle: {PATIENCE:g}s\n")
    bench.begin("plan")
    told = Shell(bench.site.manager_address, bench.site.directory).json("chaos", "run", plan, "--yes", "--insecure-network")
    assert told["well"], f"the plan {lines}: {told}"


ANYWHERE = {
    "kill-worker": kill_worker, "hang-worker": hang_worker, "kill-node-daemon": kill_node_daemon, "kill-node": kill_node,
    "kill-gateway": kill_gateway, "kill-manager": kill_manager, "kill-manager-and-node": kill_manager_and_node,
    "kill-everything": kill_everything,
    "stop-node": stop_node, "stall-node": stall_node, "stop-gateway": stop_gateway, "stop-manager": stop_manager,
    "tear-last-record": tear_last_record, "damage-record": damage_record, "operator-plan": operator_plan,
}
NETWORK = {
    "cut-node-from-manager": cut_node_from_manager, "cut-node-from-all": cut_node_from_all, "cut-one-way": cut_one_way,
    "cut-gateway-from-nodes": cut_gateway_from_nodes, "lose-packets": lose_packets,
}
DISK = {"fill-disk": fill_disk}


def available(site):
    """{name: fault} that this machine can inject."""
    return {**ANYWHERE, **(NETWORK if site.network.can_cut else {}), **(DISK if site.disk is not None else {})}
