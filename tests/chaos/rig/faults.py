"""The faults that the test injects. A fault is a function of (Bench): it breaks something, waits until that is noticed or for as
long as the fault lasts by its plan, and mends what a supervisor or an operator would mend. Health is waited for by the
caller. A fault puts its measurements into `bench.note`."""
import os
import signal
import time

from harness import eventually, processes
from harness.shell import Shell

from . import disk_faults, network_faults
from .bench import ENDED
from .load import SMALL
from .prober import Prober
from .site import ALL, DISK_MIB, GATEWAYS, GPUS, MANAGER, NODES, PATIENCE

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
    lost = [name for name in SMALL if node in bench.adopters(name)]
    bench.begin(node)
    bench.site.kill_node(node)
    bench.kills += 1 + GPUS
    probes = Prober(bench.site, bench.history, lost).start()
    bench.noticed(node, ENDED)
    first = probes.wait()
    if first:
        bench.note["node_takeover_ms"] = max(first.values()) * 1e3
    eventually(lambda: all(len([other for other in bench.adopters(name) if other != node]) >= 2 for name in lost),
               f"the host copies of {node} are on the other nodes")
    bench.note["node_copies_ms"] = (time.monotonic() - bench.began) * 1e3
    bench.site.start(node)


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
    bench.restart_manager()


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
    "operator-plan": operator_plan, **disk_faults.DAMAGED,
}
NETWORK, DISK = network_faults.FAULTS, disk_faults.FULL
# Under these a run of a function with state that was not acknowledged does not count: no daemon ends, and no connection.
EXACT = {*DISK, "kill-worker", "hang-worker"}


def available(site):
    """{name: fault} that this machine can inject."""
    return {**ANYWHERE, **(NETWORK if site.network.can_cut else {}), **(DISK if len(site.disks) == len(DISK_MIB) else {})}
