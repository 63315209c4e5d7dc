"""Processes as /proc shows them. A GPU worker outlives its daemon, so it is found by its command line."""
import contextlib
import os
import pathlib
import signal

from .waiting import eventually


def alive(pid):
    """Whether the process runs: it has neither ended nor become a zombie."""
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False


def mentioning(text):
    """{pid: arguments} of the living processes with `text` in an argument, without this process."""
    found = {}
    for entry in pathlib.Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        try:
            arguments = (entry / "cmdline").read_bytes().decode(errors="replace").split("\0")
        except OSError:
            continue
        if any(text in argument for argument in arguments) and alive(int(entry.name)):
            found[int(entry.name)] = arguments
    return found


def open_files(pid):
    """{path of a descriptor: what it refers to} of the process. A descriptor that is closed meanwhile is left out."""
    found = {}
    for descriptor in pathlib.Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):
            found[descriptor] = os.readlink(descriptor)
    return found


def kill(*pids):
    """Kills the processes at once with SIGKILL and returns when all have ended. A process that is gone already is fine:
    it may end between the moment that the test saw it and the signal."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    for pid in pids:
        eventually(lambda: not alive(pid), f"process {pid} ends after SIGKILL")
