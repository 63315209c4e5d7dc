"""make demo: a cluster deploys more models than its GPUs hold, runs a workflow, loses a GPU worker and answers every
request."""
import argparse
import pathlib
import re
import signal
import sys
import threading
import time
import urllib.request

import numpy as np

import load
import models
from client import Client, Refused
from cluster import GPUS, NODES, Cluster, ClusterError

GPU_MEMORY = "24MiB"  # of all GPUs less than the models: they swap all along
LEAST_SWAPS = 100
CALIBRATE, REPLAY = 3, 20
CLIENTS = 8
VICTIM = ("node-1", 0)


def deploy(client, directory, called):
    deadlines = {function.name: function.deadline_ms for function in called}
    families = {function.name: function.family for function in called}
    deployed = {}
    for name, path in models.onnx_files(directory).items():
        began, data = time.monotonic(), path.read_bytes()
        client.call("POST", f"/v2/troupe/functions/{name}?deadline_ms={deadlines.get(name, 200)}", data)
        deployed.setdefault(families.get(name, name), []).append((len(data), time.monotonic() - began))
    for family, each in deployed.items():
        size, took = (sum(values) for values in zip(*each))
        print(f"  {family:<13} {size / 1e6:6.1f} MB  deployed in {took:.2f} s")
    client.call("POST", "/v2/troupe/workflows", (models.EXAMPLES / "ensemble" / "ensemble.yaml").read_bytes())
    print("  ensemble      workflow of four of them")
    total = sum(size for each in deployed.values() for size, _ in each)
    print(f"  {total / 1e6:.0f} MB of models on {NODES * GPUS} GPUs of {GPU_MEMORY} each")


def classify(client, batch=36):
    """Accuracy on the held-out digits, in batches; the probabilities are compared with numpy's."""
    images, labels = models.heldout()
    wrong, accuracies = 0, {}
    for name, wanted in models.independent_digits().items():
        found = np.concatenate([client.infer(name, {"image": images[i:i + batch]})["probabilities"]
                                for i in range(0, len(images), batch)])
        close = np.isclose(found, wanted, models.RELATIVE, models.ABSOLUTE).all(axis=1)
        wrong += int((~close).sum())
        accuracies[name] = float((found.argmax(axis=1) == labels).mean())
        print(f"  {name}: accuracy {accuracies[name]:.4f} on {len(labels)} held-out digits; "
              f"{int(close.sum())} of {len(labels)} as numpy computes them")
    return accuracies["digits"], wrong


def take_references(client, called):
    """Each distinct input is answered once, alone; what the load is answered must be the same."""
    independent = models.independent_digits()
    for function in called:
        for i, inputs in enumerate(function.inputs):
            answer = client.infer(function.name, inputs)
            if function.name in independent:
                answer = {"probabilities": independent[function.name][i:i + 1]}
            function.references.append({name: array.copy() for name, array in answer.items()})


def counters(cluster):
    """Sums over the nodes of what their operations ports count."""
    total = {"swaps": 0.0, "hits": 0.0, "served": 0.0, "retried": 0.0}
    for i in range(NODES):
        ready = (cluster.root / f"node-{i}" / "out").read_text()
        port = re.search(r"operations at (http://[0-9.:]+)", ready).group(1)
        text = urllib.request.urlopen(port + "/metrics", timeout=10).read().decode()
        for name in total:
            for value in re.findall(rf"^troupe_node_{name}_total\{{[^}}]*\}} (\S+)$", text, re.M):
                total[name] += float(value)
    return total


def replay_and_kill(cluster, called, rate):
    """The load with a killed worker in the middle. Returns the tally and the recovery in seconds (None: never)."""
    arrivals = load.bursty_arrivals(rate, REPLAY, seed=11)
    replay = load.Replay(cluster.url, called, arrivals)
    recovery = []
    killer = threading.Thread(target=lambda: recovery.append(cluster.kill_worker(*VICTIM)), daemon=True)
    for second in range(REPLAY):
        time.sleep(max(0, replay.begin + second + 1 - time.monotonic()))
        note = ""
        if second == REPLAY // 2 - 1:
            killer.start()
            note = f"  SIGKILL to the worker of {VICTIM[0]}/{VICTIM[1]}"
        answered, failed = replay.tally.count(), sum(replay.tally.failed.values())
        due = sum(at <= second + 1 for at in arrivals)
        print(f"  {second + 1:2d}/{REPLAY} s  due {due:6d}  answered {answered:6d}  failed {failed}{note}")
    tally = replay.finish(patience=60)
    killer.join()
    return tally, recovery[0]


def table(tally, called, moved, recovery):
    def at(values, percent):
        return f"{1e3 * values[min(len(values) - 1, int(len(values) * percent / 100))]:.1f}"

    families = {}
    for function in called:
        families.setdefault(function.family, []).append(function)
    rows = [("function", "requests", "failed", "wrong", "p50 ms", "p98 ms", "p99 ms", "deadline", "SLO met")]
    for family, functions in families.items():
        values = sorted(value for function in functions for value in tally.latencies[function.name])
        if not values:
            continue
        deadline = functions[0].deadline_ms
        met = sum(1e3 * value <= deadline for value in values) / len(values)
        rows.append((family, str(len(values)), *(str(sum(counts[each.name] for each in functions))
                                                 for counts in (tally.failed, tally.wrong)),
                     at(values, 50), at(values, 98), at(values, 99), f"{deadline} ms",
                     f"{'yes' if met >= 0.98 else 'no'} ({100 * met:.1f} %)"))
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    for row in rows:
        print("  " + "  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip())
    print(f"  requests to GPUs {moved['served']:.0f}, swaps {moved['swaps']:.0f}, hit ratio {hit_ratio(moved):.2f}, "
          f"run again after the kill {moved['retried']:.0f}, retried by clients {tally.retried}")
    print(f"  recovery: {'never' if recovery is None else f'{1e3 * recovery:.0f} ms'} from SIGKILL until the GPU's new "
          "worker took requests")


def hit_ratio(moved):
    return moved["hits"] / max(1, moved["served"])


def story(cluster):
    called = models.functions()
    print(f"Starting a manager with a gateway and {NODES} nodes with {GPUS} virtual GPUs each, in {cluster.root}")
    cluster.start()
    cluster.wait_for_workers()
    client = Client(cluster.url, timeout=120)
    print(f"Deploying to {cluster.url}")
    networks = cluster.root / "networks"
    networks.mkdir()
    deploy(client, networks, called)
    print("Classifying handwritten digits")
    accuracy, wrong = classify(client)
    take_references(client, called)
    rate, calibration = load.closed_loop(cluster.url, called, CALIBRATE, CLIENTS)
    print(f"Calibrated for {CALIBRATE} s: {rate:.0f} requests/s over {len(called)} functions")
    print(f"Replaying {REPLAY} s of bursts at half of that, on average")
    before = counters(cluster)
    tally, recovery = replay_and_kill(cluster, called, rate / 2)
    time.sleep(1.2)  # the counters are written once a second
    after = counters(cluster)
    moved = {name: after[name] - before[name] for name in before}
    table(tally, called, moved, recovery)
    failed = sum(tally.failed.values()) + sum(calibration.failed.values())
    wrong += sum(tally.wrong.values()) + sum(calibration.wrong.values())
    for complaint in calibration.complaints + tally.complaints:
        print(f"  failed: {complaint}")
    result = (f"RESULT requests={tally.count()} failed={failed} wrong={wrong} accuracy={accuracy:.2f} "
              f"swaps={moved['swaps']:.0f} hit_ratio={hit_ratio(moved):.2f} "
              f"recovery_ms={-1 if recovery is None else round(1e3 * recovery)}")
    good = failed == 0 and wrong == 0 and recovery is not None and accuracy >= 0.97
    return result, good and moved["swaps"] >= LEAST_SWAPS


def what_next(cluster):
    print(f"""The cluster goes on (files in {cluster.root}). Try:
  {cluster.programs}/troupe --manager {cluster.manager} cluster status
  {cluster.programs}/troupe --manager {cluster.manager} top
  {cluster.programs}/troupe --manager {cluster.manager} kill gpu {VICTIM[0]}/{VICTIM[1]}
  examples/client.py --url {cluster.url} --model ensemble
  curl {cluster.url}/v2/models/digits
  curl {cluster.url}/metrics
Stop it with:
  kill {' '.join(str(daemon.pid) for daemon in cluster.daemons.values())}; rm -r {cluster.root}""")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--keep", action="store_true", help="leave the cluster running")
    parser.add_argument("--bin", type=pathlib.Path, default=models.ROOT / "build" / "release" / "bin",
                        help="directory of the programs")
    arguments = parser.parse_args()
    if not (arguments.bin / "trouped").exists():
        print(f"demo: there is no trouped in {arguments.bin}: run make build", file=sys.stderr)
        return 2
    # A terminated demo cleans up as an interrupted one does.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    cluster = Cluster(arguments.bin.resolve(), GPU_MEMORY)
    keep, began = False, time.monotonic()
    try:
        result, good = story(cluster)
        keep = arguments.keep
        if keep:
            what_next(cluster)
    except (ClusterError, Refused, OSError) as error:
        print(f"demo: {error}", file=sys.stderr)
        for name in cluster.daemons:
            print(f"--- {name}\n{cluster.log(name)[-1000:]}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("demo: interrupted; stopping", file=sys.stderr)
        return 130
    finally:
        if not keep:
            cluster.stop()
    print(f"{time.monotonic() - began:.0f} s in all")
    print(result)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
