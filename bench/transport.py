#!/usr/bin/python3
"""How fast bytes travel: between hosts beside UCX's own benchmark, to a node that adopts a model, and to the next step on one GPU.

usage: transport.py [--build DIR] [--rounds N] [--only PART ...]

Hosts are processes of this machine that take themselves for hosts of their own, so the bytes go over the loopback device, and
sender and receiver share the processors. The yardstick of a rate is ucx_perftest (Debian's ucx-utils), which sends one buffer as
active messages over the same transport; ours fetches a tensor into a place in the reader's arena, asked for each time.

  rate            ucx_over_perftest/BYTES, stream_over_perftest/BYTES: bytes a second beside the yardstick's
                  four_readers/NETWORK: the same, of four readers together
  control         control_p99_ratio/NETWORK: a message to an actor and back, while tensors of 256 MiB move all the time, beside
                  the same message while nothing moves
  adoption        adoption_over_link/512MiB: a second node adopts a model, beside the time that its bytes take as in `rate`
  tensors         put_get_us/same-gpu, put_get_copied_bytes/same-gpu: the store's own work for a tensor that stays on its GPU
"""
import json
import os
import shutil
import subprocess
import sys

from invoke import free_port
from models import adoption, dense
from report import run_parts

NETWORKS = ("ucx", "stream")
MESSAGES = 4000  # of each measurement of one message
LARGE = 256 << 20
ADOPTED_MIB = 512


def benchmarks(program, filter, seconds=1.0):
    """What a program of google-benchmark measured: [{"name": ..., ...}]."""
    done = subprocess.run([str(program), f"--benchmark_filter={filter}", "--benchmark_format=json", f"--benchmark_min_time={seconds}"],
                          capture_output=True, text=True, check=True)
    return json.loads(done.stdout)["benchmarks"]


def rates(build, network, arguments=""):
    """{(bytes, readers): bytes a second} of fetches from another host; only those whose arguments begin so."""
    found = {}
    for one in benchmarks(build / "bin" / "transport_bench", f"RemoteRate/{network}/{arguments}"):
        size, readers = (int(word) for word in one["name"].split("/")[2:4])
        found[size, readers] = one["bytes_per_second"]
    return found


def perftest(size):
    """Bytes a second of ucx_perftest between two processes of this machine."""
    port = str(free_port())
    environment = dict(os.environ, UCX_TLS="tcp,self")
    command = ["ucx_perftest", "-p", port]
    with subprocess.Popen(["stdbuf", "-oL", *command], env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as server:
        while "Waiting" not in (line := server.stdout.readline()):
            if not line:
                raise SystemExit("transport.py: ucx_perftest has ended before it was asked")
        count = max(4, (2 << 30) // size)
        done = subprocess.run([*command, "127.0.0.1", "-t", "ucp_am_bw", "-s", str(size), "-n", str(count), "-w", "5", "-f"],
                              env=environment, capture_output=True, text=True, check=True)
        server.wait(30)
    # The last line: iterations, three times, then two rates in MB/s of 2^20 bytes: average and overall.
    return float(done.stdout.splitlines()[-1].split()[5]) * (1 << 20)


def measure_rates(report, arguments):
    if not shutil.which("ucx_perftest"):
        raise SystemExit("transport.py: there is no ucx_perftest; deploy/bootstrap.sh bench installs it (ucx-utils)")
    ours = {network: [] for network in NETWORKS}
    yardstick = []
    for _ in range(arguments.rounds):
        for network in NETWORKS:
            ours[network].append(rates(arguments.build, network))
        yardstick.append({size: perftest(size) for size, _ in ours["ucx"][0]})
    for size, readers in ours["ucx"][0]:
        for network in NETWORKS:
            name = f"{network}_over_perftest/{size}" if readers == 1 else f"four_readers/{network}"
            report.add(name, [one[size, readers] / 1e9 for one in ours[network]], "GB/s", "ucx_perftest",
                       [one[size] / 1e9 for one in yardstick])


def message_p99(build, port):
    done = subprocess.run([str(build / "bin" / "caf_round_trip"), "--peer", port, "--requests", str(MESSAGES)], capture_output=True,
                          text=True, check=True)
    return json.loads(done.stdout)["p99_us"]


def measure_control(report, arguments):
    quiet, busy = [], {network: [] for network in NETWORKS}
    command = [str(arguments.build / "bin" / "caf_round_trip"), "--serve"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as server:
        port = server.stdout.readline().strip()
        for _ in range(arguments.rounds):
            quiet.append(message_p99(arguments.build, port))
            for network in NETWORKS:
                # It is ended when the messages have been answered, and would go on for a minute.
                mover = subprocess.Popen([str(arguments.build / "bin" / "transport_bench"), "--benchmark_min_time=60",
                                          f"--benchmark_filter=RemoteRate/{network}/{LARGE}/"], stdout=subprocess.DEVNULL,
                                         stderr=subprocess.DEVNULL)
                busy[network].append(message_p99(arguments.build, port))
                if mover.poll() is not None:
                    raise SystemExit("transport.py: transport_bench ended while it was to move tensors")
                mover.kill()
                mover.wait()
        server.stdin.close()
    for network in NETWORKS:
        report.add(f"control_p99_ratio/{network}", busy[network], "us", "nothing moves", quiet)


def measure_adoption(report, arguments):
    model = dense(ADOPTED_MIB)
    for network in NETWORKS:
        took, link = [], []
        for _ in range(arguments.rounds):
            took.append(adoption(arguments.build, network, model)[0])
            link.append(1e3 * (ADOPTED_MIB << 20) / rates(arguments.build, network, f"{LARGE}/1/")[LARGE, 1])
        report.add(f"adoption_over_link/{ADOPTED_MIB}MiB/{network}", took, "ms", "the link alone", link)


def measure_tensors(report, arguments):
    found = [benchmarks(arguments.build / "bin" / "tensor_bench", "PutGet/4194304") for _ in range(arguments.rounds)]
    report.add("put_get_us/same-gpu", [one["real_time"] / 1e3 for (one,) in found], "us")
    report.add("put_get_copied_bytes/same-gpu", [one["copied_bytes"] for (one,) in found], "bytes")


PARTS = {"rate": measure_rates, "control": measure_control, "adoption": measure_adoption, "tensors": measure_tensors}

if __name__ == "__main__":
    sys.exit(run_parts("transport", "all processes share one machine's processors", __doc__, PARTS))
