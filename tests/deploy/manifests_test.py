#!/usr/bin/python3
"""The files of deploy/ that no program of this machine runs, judged without a cluster and without a builder: Kubernetes'
manifests, the Containerfile, the compose file; and the units' rating, man pages and completion, where the tools are there.

    tests/deploy/manifests_test.py --build build/release

What this cannot see: an API server's own validation, scheduling, images that are pulled, policies of a network.
"""
import argparse
import gzip
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

import yaml

ROOT = pathlib.Path(__file__).resolve().parents[2]
DEPLOY = ROOT / "deploy"
BUILD = ROOT / "build/release"
NAME = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")
WORSE_THAN = 30  # systemd-analyze security: 3.0, in tenths

# What an object may have, as far as these manifests use it: a field that is not here is a mistake of writing, or is to be
# added here after the API's reference was read.
CONTAINER = {"name", "image", "command", "args", "env", "ports", "startupProbe", "readinessProbe", "livenessProbe",
             "securityContext", "resources", "volumeMounts"}
POD = {"terminationGracePeriodSeconds", "automountServiceAccountToken", "securityContext", "initContainers", "containers",
       "volumes", "nodeSelector"}
KINDS = {
    ("v1", "ConfigMap"): {"data"},
    ("v1", "Service"): {"clusterIP", "publishNotReadyAddresses", "selector", "ports"},
    ("apps/v1", "StatefulSet"): {"serviceName", "replicas", "selector", "template", "volumeClaimTemplates", "podManagementPolicy"},
    ("apps/v1", "DaemonSet"): {"selector", "template", "updateStrategy"},
    ("policy/v1", "PodDisruptionBudget"): {"minAvailable", "maxUnavailable", "selector"},
}
PROBE = {"exec", "periodSeconds", "timeoutSeconds", "failureThreshold"}
SECURITY = {"allowPrivilegeEscalation", "readOnlyRootFilesystem", "capabilities", "runAsNonRoot", "runAsUser"}
QUANTITY = re.compile(r"\d+(\.\d+)?(m|[KMGT]i)?")
OUTSIDE = {"troupe-authority"}  # Secrets that the page has an operator make


def manifests():
    return [document for path in sorted((DEPLOY / "kubernetes").glob("*.yaml")) for document in yaml.safe_load_all(path.read_text())]


def judge(documents):
    """What is wrong with the manifests, as sentences."""
    wrong = []

    def only(what, found, allowed):
        wrong.extend(f"{what} has no field '{key}'" for key in sorted(set(found) - allowed))

    workloads = [one for one in documents if one["kind"] in ("StatefulSet", "DaemonSet")]
    configs = {one["metadata"]["name"]: one["data"] for one in documents if one["kind"] == "ConfigMap"}
    services = {one["metadata"]["name"]: one["spec"] for one in documents if one["kind"] == "Service"}
    for one in documents:
        where = f"{one['kind']} {one['metadata']['name']}"
        fields = KINDS.get((one["apiVersion"], one["kind"]))
        if fields is None:
            wrong.append(f"{where}: {one['apiVersion']} has no such kind here")
            continue
        only(where, one.get("spec", {"data": 0}), fields)
        only(where, one, {"apiVersion", "kind", "metadata", "spec", "data"})
        if one["metadata"].get("namespace") != "troupe" or not NAME.fullmatch(one["metadata"]["name"]):
            wrong.append(f"{where}: its name or namespace is not one of a label's form")
        if one["kind"] in ("Service", "PodDisruptionBudget"):
            chosen = one["spec"]["selector"].get("matchLabels", one["spec"]["selector"])
            if not any(chosen.items() <= pod["spec"]["template"]["metadata"]["labels"].items() for pod in workloads):
                wrong.append(f"{where}: no pod has the labels that it selects")
    for one in workloads:
        where, spec = f"{one['kind']} {one['metadata']['name']}", one["spec"]
        template = spec["template"]
        pod = template["spec"]
        only(f"the pod of {where}", pod, POD)
        if not spec["selector"]["matchLabels"].items() <= template["metadata"]["labels"].items():
            wrong.append(f"{where}: its own pods do not have the labels that it selects")
        if one["kind"] == "StatefulSet" and services.get(spec["serviceName"], {}).get("clusterIP") != "None":
            wrong.append(f"{where}: serviceName is not a headless Service here")
        if not pod["securityContext"].get("runAsNonRoot"):
            wrong.append(f"{where}: its pod may run as root")
        volumes = {volume["name"]: volume for volume in pod["volumes"]}
        volumes.update({claim["metadata"]["name"]: claim for claim in spec.get("volumeClaimTemplates", [])})
        for volume in volumes.values():
            if "configMap" in volume and volume["configMap"]["name"] not in configs:
                wrong.append(f"{where}: there is no ConfigMap {volume['configMap']['name']}")
            if "secret" in volume and volume["secret"]["secretName"] not in OUTSIDE:
                wrong.append(f"{where}: the page names no Secret {volume['secret']['secretName']}")
        for container in pod["initContainers"] + pod["containers"]:
            inside = f"{container['name']} of {where}"
            only(inside, container, CONTAINER)
            only(f"the security of {inside}", container["securityContext"], SECURITY)
            if container["securityContext"]["allowPrivilegeEscalation"] or container["securityContext"]["capabilities"]["drop"] != ["ALL"]:
                wrong.append(f"{inside}: it has privileges that it does not need")
            for mount in container["volumeMounts"]:
                if mount["name"] not in volumes:
                    wrong.append(f"{inside}: there is no volume {mount['name']}")
            for kind in ("requests", "limits"):
                for resource, quantity in container["resources"][kind].items():
                    if not QUANTITY.fullmatch(str(quantity)):
                        wrong.append(f"{inside}: {kind} of {resource}: '{quantity}' is not a quantity")
            known = {variable["name"] for variable in container.get("env", [])}
            said = container.get("command", []) + container.get("args", []) + [one.get("value", "") for one in container.get("env", [])]
            for used in re.findall(r"\$\((\w+)\)", " ".join(said)):
                if used not in known:
                    wrong.append(f"{inside}: $({used}) is not a variable of it")
        for container in pod["containers"]:
            inside = f"{container['name']} of {where}"
            for kind in ("startupProbe", "readinessProbe", "livenessProbe"):
                if kind not in container:
                    wrong.append(f"{inside}: no {kind}")
                    continue
                only(f"the {kind} of {inside}", container[kind], PROBE)
            ports = {port["name"] for port in container.get("ports", [])}
            for name, service in services.items():
                if service["selector"].items() <= template["metadata"]["labels"].items():
                    for port in service["ports"]:
                        if port["targetPort"] not in ports:
                            wrong.append(f"{inside}: Service {name} has the port '{port['targetPort']}', and it has not")
    return wrong


class Kubernetes(unittest.TestCase):
    def test_manifests_fit_together(self):
        self.assertEqual(judge(manifests()), [])

    def test_planted_mistakes_are_found(self):
        def planted(change):
            documents = manifests()
            by_name = {(one["kind"], one["metadata"]["name"]): one for one in documents}
            change(by_name)
            return "\n".join(judge(documents))

        node, gateway = ("DaemonSet", "troupe-node"), ("StatefulSet", "troupe-gateway")
        container = lambda one: one["spec"]["template"]["spec"]["containers"][0]
        self.assertIn("has no field 'readinesProbe'", planted(lambda of: container(of[node]).update(readinesProbe={})))
        self.assertIn("no livenessProbe", planted(lambda of: container(of[node]).pop("livenessProbe")))
        self.assertIn("no pod has the labels", planted(lambda of: of["Service", "troupe"]["spec"].update(selector={"a": "b"})))
        self.assertIn("there is no volume", planted(lambda of: container(of[node])["volumeMounts"].append({"name": "lost", "mountPath": "/x"})))
        self.assertIn("not a headless Service", planted(lambda of: of[gateway]["spec"].update(serviceName="troupe")))
        self.assertIn("is not a variable", planted(lambda of: container(of[node])["args"].append("$(POD_PI)")))
        self.assertIn("is not a quantity", planted(lambda of: container(of[node])["resources"]["limits"].update(memory="12 GB")))
        self.assertIn("privileges", planted(lambda of: container(of[node])["securityContext"].update(allowPrivilegeEscalation=True)))
        self.assertIn("has the port 'http'", planted(lambda of: container(of[gateway]).update(ports=[])))

    def test_each_configuration_is_valid_with_its_flags(self):
        [config] = [one["data"] for one in manifests() if one["kind"] == "ConfigMap"]
        for one in manifests():
            if one["kind"] not in ("StatefulSet", "DaemonSet"):
                continue
            [container] = one["spec"]["template"]["spec"]["containers"]
            with tempfile.TemporaryDirectory() as folder:
                file = pathlib.Path(folder) / "config.yml"
                file.write_text(config[f"{container['name']}.yml"])
                words = [word.replace("$(POD_IP)", "127.0.0.1") for word in container["args"]]
                flags = words[2:]  # behind --config FILE
                at = flags.index("--tls-dir")
                check(self, file, flags[:at] + flags[at + 2:])


def check(test, file, flags):
    """`trouped --check`, without the certificates, which are made where the daemon runs."""
    done = subprocess.run([BUILD / "bin/trouped", "--check", file, "--insecure-network", *flags], capture_output=True, text=True, timeout=60)
    test.assertEqual((done.returncode, done.stderr), (0, ""))


class Containers(unittest.TestCase):
    def test_containerfile(self):
        text = (DEPLOY / "container/Containerfile").read_text()
        steps = [line.split(maxsplit=1) for line in re.sub(r"\\\n", " ", re.sub(r"^\s*#.*\n", "", text, flags=re.MULTILINE)).splitlines() if line.strip()]
        known = {"ARG", "FROM", "WORKDIR", "COPY", "RUN", "USER", "VOLUME", "STOPSIGNAL", "ENTRYPOINT"}
        self.assertEqual({word for word, _ in steps} - known, set())
        stages = {rest.split()[-1] for word, rest in steps if word == "FROM"}
        for word, rest in steps:
            if word == "COPY":
                source, *more = rest.split()
                if source.startswith("--from="):
                    self.assertIn(source.removeprefix("--from="), stages)
                else:
                    self.assertTrue((ROOT / source).exists(), rest)
        self.assertEqual([rest for word, rest in steps if word == "USER"], ["troupe"])
        for package in re.findall(r"/tmp/packages/(troupe-[a-z-]+)_", text):
            self.assertIn(f"troupe_package({package.removeprefix('troupe-')} ", (ROOT / "cmake/Packages.cmake").read_text())

    def test_compose(self):
        composed = yaml.safe_load((DEPLOY / "container/compose.yaml").read_text())
        volumes = set(composed["volumes"])
        image = (DEPLOY / "container/Containerfile").read_text()
        self.assertEqual(composed["x-daemon"]["tmpfs"], ["/tmp"])
        [owned] = re.findall(r"install --directory --owner=troupe .*", image)
        for name, service in composed["services"].items():
            for volume in service["volumes"]:
                self.assertIn(volume.split(":")[0], volumes, name)
                self.assertIn(volume.split(":")[1], owned.split(), f"{name}: Docker gives root what the image does not have")
            if name == "certificates":
                self.assertTrue((DEPLOY / "container" / service["build"]["context"] / service["build"]["dockerfile"]).exists())
                issued = dict(re.findall(r"^issue \w+ (\S+) (\S+)$", service["command"][0], re.MULTILINE))
                continue
            words = service["command"]
            [address] = (network["ipv4_address"] for network in service["networks"].values())
            self.assertEqual(issued[name], address, f"{name}: its certificate names where others reach it")
            if name != "manager":
                self.assertEqual(words[words.index("--listen") + 1], f"{address}:0")
            self.assertTrue(words[words.index("--run") + 1].startswith("/tmp/"), f"{name}: a folder that its user may write to")
            at = words.index("--tls-dir")
            self.assertIn(words[at + 1].removeprefix("/tls/"), issued)
            with tempfile.NamedTemporaryFile() as empty:
                check(self, empty.name, words[:at] + words[at + 2:])
            self.assertIn(service["healthcheck"]["test"][-1].split("/")[2], words, name)


@unittest.skipIf(shutil.which("systemd-analyze") is None, "systemd-analyze is not installed")
class Units(unittest.TestCase):
    def rated(self, unit):
        return subprocess.run(["systemd-analyze", "security", "--offline=true", "--no-pager", f"--threshold={WORSE_THAN}", unit], capture_output=True, text=True)

    def test_each_unit_is_rated_at_most_three(self):
        units = sorted(DEPLOY.glob("systemd/*.service")) + sorted(DEPLOY.glob("ansible/roles/*/files/*.service"))
        self.assertEqual(len(units), 4)
        for unit in units:
            rating = self.rated(unit)
            self.assertEqual(rating.returncode, 0, f"{unit.name}: {rating.stdout.splitlines()[-1:]} {rating.stderr}")

    def test_the_node_with_cuda_is_rated_at_most_three(self):
        with tempfile.TemporaryDirectory() as folder:
            unit = pathlib.Path(folder) / "troupe-node.service"
            text = (DEPLOY / "systemd/troupe-node.service").read_text()
            dropped = (DEPLOY / "systemd/cuda.conf").read_text().partition("[Service]\n")[2]
            unit.write_text(text.replace("\n[Install]", dropped + "\n[Install]"))
            self.assertEqual(self.rated(unit).returncode, 0)

    def test_a_unit_without_hardening_is_found(self):
        with tempfile.TemporaryDirectory() as folder:
            unit = pathlib.Path(folder) / "troupe-node.service"
            unit.write_text("".join(line for line in (DEPLOY / "systemd/troupe-node.service").read_text().splitlines(True)
                                    if not line.startswith(("Protect", "Restrict", "Capability"))))
            self.assertNotEqual(self.rated(unit).returncode, 0)

    def test_what_keeps_workers_alive(self):
        text = (DEPLOY / "systemd/troupe-node.service").read_text()
        for line in ("KillMode=process", "RuntimeDirectoryPreserve=yes", "Type=notify", "WatchdogSec=30", "LimitMEMLOCK=infinity"):
            self.assertIn(f"\n{line}\n", text)


class Pages(unittest.TestCase):
    def setUp(self):
        self.folder = BUILD / "packages"
        if not (self.folder / "trouped.8.gz").exists():
            self.skipTest("the packages are not built: make package")

    def test_pages_say_what_help_says(self):
        for page in sorted(self.folder.glob("*.[18].gz")):
            program = BUILD / "bin" / page.name.split(".")[0]
            text = gzip.decompress(page.read_bytes()).decode().replace("\\-", "-").replace("\\&", "")
            told = subprocess.run([program, "--help"], capture_output=True, text=True, check=True).stdout
            options = set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", told))
            self.assertTrue(options, program)
            for option in options:
                self.assertIn(option, text, page.name)

    @unittest.skipIf(shutil.which("man") is None, "man is not installed")
    def test_pages_are_good_roff(self):
        for page in sorted(self.folder.glob("*.[18].gz")):
            done = subprocess.run(["man", "--warnings", "-E", "UTF-8", "-l", "-Tutf8", "-Z", page], capture_output=True, text=True)
            self.assertEqual(done.stderr, "", page.name)


class Completion(unittest.TestCase):
    def candidates(self, line):
        done = subprocess.run([BUILD / "bin/troupe", "__complete", line], capture_output=True, text=True, timeout=60,
                              env={"TROUPE_MANAGER": "127.0.0.1:1", "PATH": "/usr/bin:/bin"})
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout.split()

    def test_the_program_says_what_may_come(self):
        self.assertEqual(self.candidates("func"), ["function"])
        self.assertIn("simulate", self.candidates(""))
        self.assertNotIn("quit", self.candidates(""))
        self.assertIn("deploy", self.candidates("function "))
        self.assertIn("--deadline", self.candidates("function deploy --"))
        with tempfile.TemporaryDirectory() as folder:
            (pathlib.Path(folder) / "model.onnx").touch()
            self.assertEqual(self.candidates(f"function deploy name {folder}/mo"), [f"{folder}/model.onnx"])

    def test_scripts_ask_the_program(self):
        scripts = DEPLOY / "packages/completion"
        line = "troupe func"
        asked = (f"PATH={BUILD / 'bin'}:$PATH; source {scripts}/troupe.bash; COMP_LINE='{line}' COMP_POINT={len(line)} COMP_WORDS=(troupe func) "
                 "COMP_CWORD=1; _troupe; printf '%s\\n' \"${COMPREPLY[@]}\"")
        done = subprocess.run(["bash", "-c", asked], capture_output=True, text=True)
        self.assertEqual((done.stdout, done.stderr), ("function\n", ""))
        for shell, words in (("zsh", ["-n"]), ("fish", ["--no-execute"])):
            if shutil.which(shell):
                done = subprocess.run([shell, *words, scripts / f"troupe.{shell}"], capture_output=True, text=True)
                self.assertEqual(done.stderr, "", shell)
            else:
                print(f"({shell} is not installed: its script was not parsed)", file=sys.stderr)


class Packages(unittest.TestCase):
    def setUp(self):
        self.packages = sorted((BUILD / "packages").glob("*.deb"))
        if not self.packages:
            self.skipTest("the packages are not built: make package")

    @unittest.skipIf(shutil.which("lintian") is None, "lintian is not installed")
    def test_lintian_finds_no_error(self):
        done = subprocess.run(["lintian", "--fail-on", "error", "--tag-display-limit", "0", *self.packages], capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stdout)

    def test_what_is_where(self):
        where = {}
        for package in self.packages:
            name = package.name.split("_")[0]
            listed = subprocess.run(["dpkg-deb", "--contents", package], capture_output=True, text=True, check=True).stdout
            for path in re.findall(r" \.(/\S+[^/\s])$", listed, re.MULTILINE):
                self.assertEqual(where.setdefault(path, name), name, f"{path} is in two packages")
        for path, name in {"/usr/bin/trouped": "troupe-daemon", "/usr/libexec/troupe/troupe-import": "troupe-daemon",
                           "/usr/lib/systemd/system/troupe-node.service": "troupe-daemon", "/usr/lib/sysusers.d/troupe.conf": "troupe-daemon",
                           "/usr/lib/tmpfiles.d/troupe.conf": "troupe-daemon", "/usr/share/man/man8/trouped.8.gz": "troupe-daemon",
                           "/usr/libexec/troupe/troupe-gpu-worker": "troupe-gpu-worker", "/usr/bin/troupe": "troupe-cli",
                           "/usr/share/bash-completion/completions/troupe": "troupe-cli", "/usr/bin/troupe-sim": "troupe-sim"}.items():
            self.assertEqual(where.get(path), name, path)


def main():
    global BUILD
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument("--build", type=pathlib.Path, default=BUILD)
    given, rest = parser.parse_known_args()
    BUILD = given.build.resolve()
    unittest.main(argv=[sys.argv[0], *rest], verbosity=2)


if __name__ == "__main__":
    main()
