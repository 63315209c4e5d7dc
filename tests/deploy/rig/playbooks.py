"""Ansible as an operator runs it: an inventory, playbooks, and what the recap says."""
import json
import os
import pathlib
import re
import subprocess

from .hosts import run

PLAYBOOKS = pathlib.Path(__file__).resolve().parents[3] / "deploy/ansible"


class Played:
    def __init__(self, code, text, words):
        self.code, self.text, self.words = code, text, words

    @property
    def changed(self):
        """{host: how many tasks changed something}."""
        return {host: int(count) for host, count in re.findall(r"^(\S+)\s+: ok=\d+\s+changed=(\d+)", self.text, re.MULTILINE)}

    def good(self):
        assert self.code == 0, f"{self.words} ended with {self.code}:\n{self.text[-6000:]}"
        return self

    def bad(self, *words):
        """It failed, and its output has each of these."""
        assert self.code != 0, f"{self.words} should have failed:\n{self.text[-3000:]}"
        flat = " ".join(self.text.split())
        for word in words:
            assert word in flat, f"{self.words} does not say '{word}':\n{self.text[-4000:]}"
        return self


class Operator:
    """The machine that runs Ansible: keys, inventory, certificates, packages."""

    def __init__(self, site, programs, packages, log):
        """`log`: the file that gets what each playbook prints, as it comes."""
        self.site, self.programs, self.log = site, pathlib.Path(programs), pathlib.Path(log)
        self.log.write_text("")
        self.folder = site.folder / "operator-files"
        self.folder.mkdir()
        self.groups, self.variables, self.group_variables = {}, {"troupe_packages": str(packages)}, {}
        self.environment = {
            **os.environ, "HOME": str(self.folder), "ANSIBLE_CONFIG": str(PLAYBOOKS / "ansible.cfg"), "ANSIBLE_NOCOLOR": "1",
            "ANSIBLE_HOST_KEY_CHECKING": "false", "ANSIBLE_LOCAL_TEMP": str(self.folder / "tmp"), "LC_ALL": "C.UTF-8",
            "ANSIBLE_SSH_ARGS": f"-o ControlMaster=auto -o ControlPersist=120 -o UserKnownHostsFile=/dev/null -o LogLevel=ERROR -i {site.key}",
            "ANSIBLE_SSH_CONTROL_PATH_DIR": str(site.folder / "ssh"), "ANSIBLE_TIMEOUT": "5",
            "ANSIBLE_PYTHON_INTERPRETER": "/usr/bin/python3"}

    def write(self, name="inventory.yml", **groups):
        """The inventory as JSON, which is YAML too; `groups` replace those that are usual."""
        hosts = lambda names: {host: {"ansible_host": self.site.hosts[host].address if host in self.site.hosts else "10.78.0.250"}
                               for host in names}
        children = {group: {"hosts": hosts(names), "vars": self.group_variables.get(group, {})}
                    for group, names in {**self.groups, **groups}.items()}
        path = self.folder / name
        path.write_text(json.dumps({"all": {"vars": {"ansible_user": "root", **self.variables}, "children": children}}, indent=1))
        return path

    def command(self, playbook, *words, inventory="inventory.yml"):
        return ["ansible-playbook", "-i", str(self.folder / inventory), str(PLAYBOOKS / playbook), *map(str, words)]

    def play(self, playbook, *words, inventory="inventory.yml", timeout=1800):
        command = self.command(playbook, *words, inventory=inventory)
        begins = self.log.stat().st_size
        with self.log.open("ab") as log:
            done = subprocess.run(command, stdout=log, stderr=log, timeout=timeout, env=self.environment, cwd=self.folder)
        return Played(done.returncode, self.log.read_bytes()[begins:].decode(), f"{playbook} {' '.join(map(str, words))}")

    def begin(self, playbook, *words):
        """One that goes on beside the caller."""
        return subprocess.Popen(self.command(playbook, *words), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                                env=self.environment, cwd=self.folder)

    def vault(self, *words):
        return run("ansible-vault", *words, "--vault-password-file", self.folder / "vault-password", env=self.environment)
