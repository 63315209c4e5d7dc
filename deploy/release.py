#!/usr/bin/python3
"""A release of what is committed: packages that anybody can build again byte for byte, with what they are made of.

    deploy/release.py --out build/dist [--jobs N]

HEAD is put into two folders and built there, the second time without a compiler cache; the packages have to be the same bytes.
What differs is named, and then there is no release. The folder has the packages, the sources, an SBOM (SPDX 2.3, JSON), and
SHA256SUMS of all of them.
"""
import argparse
import datetime
import hashlib
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent


def run(*words, **options):
    return subprocess.run([str(word) for word in words], check=True, **options)


def output(*words, **options):
    return run(*words, capture_output=True, text=True, **options).stdout.strip()


def digest(path):
    return hashlib.sha256(path.read_bytes()).hexdigest()


def differences(first, second):
    """Names of files that are not the same in both folders, as sentences."""
    names = {path.name for folder in (first, second) for path in folder.glob("*.deb")}
    found = []
    for name in sorted(names):
        paths = [folder / name for folder in (first, second)]
        if not all(path.exists() for path in paths):
            found.append(f"{name} was made in one of the two builds only")
        elif digest(paths[0]) != digest(paths[1]):
            found.append(f"{name} differs between the two builds")
    return found


def unpack(archive, folder):
    folder.mkdir(parents=True)
    run("tar", "--extract", "--gzip", "--file", archive, "--directory", folder, "--strip-components=1")


def build(folder, jobs, moment, cache):
    environment = {**os.environ, "SOURCE_DATE_EPOCH": moment, "TZ": "UTC", "LC_ALL": "C.UTF-8"}
    if not cache:
        environment["CCACHE_DISABLE"] = "1"
    run("cmake", "--preset", "release", "-DTROUPE_RELEASE=ON", cwd=folder, env=environment, stdout=subprocess.DEVNULL)
    run("cmake", "--build", "--preset", "release", "-j", jobs, "--target", "package_files", cwd=folder, env=environment)
    run("cpack", "--config", "CPackConfig.cmake", cwd=folder / "build/release", env=environment, stdout=subprocess.DEVNULL)
    return folder / "build/release/packages"


def fields(package):
    return {name: output("dpkg-deb", "--field", package, name) for name in ("Package", "Version", "Architecture", "Depends")}


def installed_version(name):
    done = subprocess.run(["dpkg-query", "--show", "--showformat", "${Version}", name], capture_output=True, text=True)
    return done.stdout.strip()


def sbom(packages, release, commit, moment, version_of=installed_version):
    """SPDX 2.3: each package, the Debian packages that it is linked with, and how they belong together."""
    made = datetime.datetime.fromtimestamp(int(moment), datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
    entries, relations, known = [], [], {}

    def identity(name):
        return "SPDXRef-" + re.sub(r"[^A-Za-z0-9.-]", "-", name)

    for package in packages:
        told = fields(package)
        entries.append({
            "SPDXID": identity(told["Package"]), "name": told["Package"], "versionInfo": told["Version"],
            "supplier": "Organization: Troupe", "downloadLocation": "NOASSERTION", "filesAnalyzed": False,
            "licenseConcluded": "Apache-2.0", "licenseDeclared": "Apache-2.0", "copyrightText": "2026 The Troupe authors",
            "packageFileName": package.name, "checksums": [{"algorithm": "SHA256", "checksumValue": digest(package)}]})
        relations.append({"spdxElementId": "SPDXRef-DOCUMENT", "relationshipType": "DESCRIBES", "relatedSpdxElement": identity(told["Package"])})
        for need in filter(None, (one.strip() for one in told["Depends"].split(","))):
            name = re.match(r"[a-z0-9][a-z0-9+.-]*", need).group(0)
            relations.append({"spdxElementId": identity(told["Package"]), "relationshipType": "DEPENDS_ON", "relatedSpdxElement": identity(name)})
            if not name.startswith("troupe-"):
                known[name] = version_of(name)
    for name, version in sorted(known.items()):
        entry = {"SPDXID": identity(name), "name": name, "supplier": "Organization: Debian", "downloadLocation": "NOASSERTION",
                 "filesAnalyzed": False, "licenseConcluded": "NOASSERTION", "licenseDeclared": "NOASSERTION", "copyrightText": "NOASSERTION"}
        if version:
            entry["versionInfo"] = version
            entry["externalRefs"] = [{"referenceCategory": "PACKAGE-MANAGER", "referenceType": "purl",
                                      "referenceLocator": f"pkg:deb/debian/{name}@{version.replace('+', '%2B').replace(':', '%3A')}?arch=amd64"}]
        entries.append(entry)
    return {"spdxVersion": "SPDX-2.3", "dataLicense": "CC0-1.0", "SPDXID": "SPDXRef-DOCUMENT", "name": f"troupe-{release}",
            "documentNamespace": f"https://troupe.invalid/spdx/troupe-{release}-{commit}",
            "creationInfo": {"created": made, "creators": ["Tool: deploy/release.py"]},
            "packages": entries, "relationships": relations}


def write_sums(folder):
    names = sorted(path.name for path in folder.iterdir() if path.name != "SHA256SUMS")
    (folder / "SHA256SUMS").write_text("".join(f"{digest(folder / name)}  {name}\n" for name in names))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=pathlib.Path, required=True)
    parser.add_argument("--jobs", default=str(os.cpu_count()))
    given = parser.parse_args()
    release = re.search(r"project\(troupe VERSION (\S+)", (ROOT / "CMakeLists.txt").read_text()).group(1)
    commit = output("git", "rev-parse", "--short=12", "HEAD", cwd=ROOT)
    moment = output("git", "log", "-1", "--format=%ct", cwd=ROOT)
    out = given.out.resolve()
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    sources = out / f"troupe-{release}.tar.gz"
    with sources.open("wb") as file:
        tree = subprocess.Popen(["git", "archive", f"--prefix=troupe-{release}/", f"--add-virtual-file=troupe-{release}/COMMIT:{commit}", "HEAD"], cwd=ROOT, stdout=subprocess.PIPE)
        run("gzip", "--no-name", "--best", stdin=tree.stdout, stdout=file)
        if tree.wait() != 0:
            sys.exit("release: git archive failed")
    with tempfile.TemporaryDirectory(prefix="troupe-release-") as scratch:
        made = []
        # Two folders with names of different lengths: a path that got into a file would show.
        for name, cache in (("one", True), ("another-one", False)):
            print(f"release: build in {name}{'' if cache else ', without a compiler cache'}", flush=True)
            folder = pathlib.Path(scratch) / name
            unpack(sources, folder)
            made.append(build(folder, given.jobs, moment, cache))
        if wrong := differences(*made):
            for sentence in wrong:
                print(f"release: {sentence}", file=sys.stderr)
            shutil.copytree(made[0], out / "differs/one"), shutil.copytree(made[1], out / "differs/another-one")
            sys.exit(f"release: no release was made; both builds' packages are in {out}/differs")
        for package in sorted(made[0].glob("*.deb")):
            shutil.copy(package, out)
    packages = sorted(out.glob("*.deb"))
    (out / f"troupe-{release}.spdx.json").write_text(json.dumps(sbom(packages, release, commit, moment), indent=1) + "\n")
    write_sums(out)
    print(f"release: {release} of commit {commit}, two builds and the same bytes, in {out}")


if __name__ == "__main__":
    main()
