"""Hosts made on this machine: each is a container of systemd-nspawn with Debian's own systemd as its init, an address and
a root folder of its own (an overlay over one base that all share). Ansible reaches them by ssh, as it reaches real ones.

Everything lives in namespaces of one process (see `enter`): when it ends, the kernel takes processes, mounts and
interfaces with it.
"""
import contextlib
import hashlib
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

SUBNET = "10.78.0"
TOOLS = ("systemd-nspawn", "mmdebstrap", "ansible-playbook", "ssh", "ip", "unshare", "nsenter")
# What a freshly installed server has, and what Ansible needs there. The packages' own dependencies are added, since the
# hosts have no network to fetch them from.
BASE = ("systemd", "systemd-sysv", "dbus", "openssh-server", "openssh-client", "python3", "python3-apt", "iproute2",
        "procps", "ca-certificates", "curl", "ansible-core")
BOOT_SECONDS = 60


def why_not():
    """Why hosts cannot be made here; "" when they can."""
    if os.geteuid() != 0:
        return "only root makes containers"
    path = os.environ["PATH"] + ":/usr/sbin:/sbin"
    missing = [tool for tool in TOOLS if shutil.which(tool, path=path) is None]
    if missing:
        return f"not installed: {', '.join(missing)} (deploy/bootstrap.sh deploy installs them)"
    probe = subprocess.run(["unshare", "--mount", "--net", "--pid", "--fork", "ip", "link", "add", "probe", "type", "bridge"],
                           capture_output=True, text=True)
    if probe.returncode:
        return f"the kernel refuses namespaces or bridges: {probe.stderr.strip()}"
    if "overlay" not in pathlib.Path("/proc/filesystems").read_text():
        return "the kernel has no overlay file system"
    return ""


def enter():
    """Runs this script again inside namespaces of its own; returns there."""
    if os.environ.get("TROUPE_DEPLOY_INSIDE"):
        return
    words = ["unshare", "--mount", "--net", "--pid", "--fork", "--kill-child", "--mount-proc", sys.executable, "-B", *sys.argv]
    with _cgroups() as group:
        child = subprocess.Popen(words, env={**os.environ, "TROUPE_DEPLOY_INSIDE": group})
        # All that is inside ends with `unshare`.
        signal.signal(signal.SIGTERM, lambda *_: child.terminate())
        code = child.wait()
    sys.exit(code)


def _cgroup_roots():
    """Where systemd keeps track of processes: one tree on a machine with cgroup 2 alone, else two."""
    top = pathlib.Path("/sys/fs/cgroup")
    if (top / "cgroup.controllers").exists():
        return [top]
    return [top / name for name in ("systemd", "unified") if (top / name / "cgroup.procs").exists()]


@contextlib.contextmanager
def _cgroups():
    group = f"troupe-deploy-{os.getpid()}"
    try:
        yield group
    finally:
        for root in _cgroup_roots():
            for folder, _, _ in sorted(os.walk(root / group), reverse=True):
                with contextlib.suppress(OSError):
                    os.rmdir(folder)


def run(*words, timeout=300, check=True, **options):
    done = subprocess.run([str(word) for word in words], capture_output=True, text=True, timeout=timeout, **options)
    if check and done.returncode:
        raise RuntimeError(f"{' '.join(str(w) for w in words)}: {done.returncode}\n{done.stdout[-3000:]}{done.stderr[-3000:]}")
    return done


def base_root(folder, packages):
    """A Debian with `packages`, made once and kept in `folder`; it takes a minute or two."""
    wanted = sorted({*BASE, *packages})
    key = hashlib.sha256("\n".join(wanted).encode()).hexdigest()[:12]
    root = pathlib.Path(folder) / f"base-{key}"
    if root.is_dir():
        return root
    root.parent.mkdir(parents=True, exist_ok=True)
    for old in pathlib.Path(folder).glob("base-*"):
        shutil.rmtree(old)
    fresh = root.with_name(f"fresh-{key}")
    shutil.rmtree(fresh, ignore_errors=True)
    print(f"test-deploy: making the hosts' base system with {len(wanted)} packages, once", flush=True)
    run("mmdebstrap", "--variant=minbase", "--format=directory", '--aptopt=Acquire::Languages "none"', "--dpkgopt=force-unsafe-io",
        "--dpkgopt=path-exclude=/usr/share/locale/*", f"--include={','.join(wanted)}", _suite(), fresh, timeout=1500)
    fresh.rename(root)
    return root


def _suite():
    words = dict(line.split("=", 1) for line in pathlib.Path("/etc/os-release").read_text().splitlines() if "=" in line)
    return words.get("VERSION_CODENAME", "bookworm").strip('"')


class Site:
    """The network, the key of the operator, and the hosts; `folder` goes with it."""

    def __init__(self, base):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="troupe-deploy-"))
        run("mount", "-t", "tmpfs", "none", self.folder)  # gone with the namespace
        pathlib.Path("/run/netns").mkdir(exist_ok=True)
        run("mount", "-t", "tmpfs", "none", "/run/netns")  # names of networks would stay in the machine's own
        self.base, self.hosts = base, {}
        for words in ("link set lo up", "link add hub type bridge", f"addr add {SUBNET}.1/24 dev hub", "link set hub up"):
            run("ip", *words.split())
        self.key = self.folder / "operator"
        run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", self.key)

    def host(self, name):
        """A host that is being started; wait for it with `await_up`."""
        made = Host(self, name, len(self.hosts) + 11)
        self.hosts[name] = made
        return made

    def close(self):
        for host in self.hosts.values():
            host.pull_the_plug()
        run("umount", "-l", self.folder, check=False)
        shutil.rmtree(self.folder, ignore_errors=True)


class Host:
    def __init__(self, site, name, number):
        self.site, self.name, self.address, self.number = site, name, f"{SUBNET}.{number}", number
        self.folder = site.folder / name
        self.root = self.folder / "root"
        for part in ("upper", "work", "root"):
            (self.folder / part).mkdir(parents=True)
        run("mount", "-t", "overlay", "overlay", "-o",
            f"lowerdir={site.base},upperdir={self.folder}/upper,workdir={self.folder}/work", self.root)
        keys = self.root / "root/.ssh"
        keys.mkdir(mode=0o700, exist_ok=True)
        (keys / "authorized_keys").write_text((site.key.with_suffix(".pub")).read_text())
        (self.root / "etc/hostname").write_text(name + "\n")
        machine_id = hashlib.sha256(f"{site.folder}/{name}".encode()).hexdigest()[:32]
        (self.root / "etc/machine-id").write_text(machine_id + "\n")
        self.process = None
        self.start()

    def start(self):
        """As when its power is switched on."""
        space = f"troupe-{self.name}"
        run("ip", "netns", "delete", space, check=False)
        run("ip", "link", "delete", f"port{self.number}", check=False)
        run("ip", "netns", "add", space)
        run("ip", "link", "add", f"port{self.number}", "type", "veth", "peer", "name", "eth0", "netns", space)
        run("ip", "link", "set", f"port{self.number}", "master", "hub", "up")
        for words in ("link set lo up", f"addr add {self.address}/24 dev eth0", "link set eth0 up"):
            run("ip", "-n", space, *words.split())
        groups = [root / os.environ["TROUPE_DEPLOY_INSIDE"] / self.name for root in _cgroup_roots()]

        def join():
            for group in groups:
                group.mkdir(parents=True, exist_ok=True)
                (group / "cgroup.procs").write_text("0")

        with (self.folder / "console").open("ab") as console:
            self.process = subprocess.Popen(
                ["systemd-nspawn", "--quiet", "--boot", f"--directory={self.root}", f"--machine={self.name}", "--register=no",
                 "--keep-unit", "--resolv-conf=off", "--timezone=off", f"--network-namespace-path=/run/netns/{space}",
                 "--link-journal=no", "--console=pipe", "--system-call-filter=@pkey",
                 "--system-call-filter=landlock_create_ruleset landlock_add_rule landlock_restrict_self"],
                stdin=subprocess.DEVNULL, stdout=console, stderr=console, preexec_fn=join)

    def await_up(self):
        """Until it takes ssh."""
        end = time.monotonic() + BOOT_SECONDS
        while time.monotonic() < end and self.process.poll() is None:
            with contextlib.suppress(OSError):
                with socket.create_connection((self.address, 22), timeout=1) as probe:
                    if probe.recv(4) == b"SSH-":
                        return self
            time.sleep(0.1)
        raise RuntimeError(f"{self.name} did not start: {(self.folder / 'console').read_text(errors='replace')[-2000:]}")

    def init(self):
        """The process number of its init."""
        children = run("ps", "-o", "pid=,comm=", "--ppid", self.process.pid).stdout.split("\n")
        return next(int(line.split()[0]) for line in children if "systemd" in line)

    def run(self, *words, **options):
        """A command on the host, as root; words are handed on as they are."""
        return run("nsenter", "--target", self.init(), "--mount", "--uts", "--ipc", "--net", "--pid", "--cgroup", "--", *words, **options)

    def pull_the_plug(self):
        """As when it loses power: every process of it ends at once."""
        if self.process is None or self.process.poll() is not None:
            return
        with contextlib.suppress(Exception):
            os.kill(self.init(), signal.SIGKILL)
        self.process.kill()
        self.process.wait()
