"""sbom.py ROOT: writes the software bill of materials of an image as CycloneDX 1.5: the Debian packages that the files
below ROOT come from, and the crates that the daemon is built of."""

import json
import os
import pathlib
import subprocess
import sys


def lines(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()


def owners(root):
    """Returns the packages that own the files. Debian's lists name some files by paths without /usr."""
    files = set()
    for directory, _, names in os.walk(root):
        for name in names:
            path = "/" + str(pathlib.Path(directory, name).relative_to(root))
            files |= {path, path.removeprefix("/usr")}
    search = subprocess.run(["dpkg", "-S", *files], capture_output=True, text=True).stdout
    packages = set()
    for line in search.splitlines():
        owner, _, _ = line.partition(": ")
        packages |= {name.strip() for name in owner.split(",") if not owner.startswith("diversion")}
    # A script of the package has written the list of all authorities: it belongs to no package.
    if pathlib.Path(root, "etc/ssl/certs/ca-certificates.crt").exists():
        packages.add("ca-certificates")
    return sorted(packages)


def debian(packages):
    release = dict(line.split("=", 1) for line in open("/etc/os-release").read().splitlines() if "=" in line)
    distribution = f"{release['ID']}-{release.get('VERSION_ID', '').strip(chr(34))}"
    form = "${Package}\t${Version}\t${Architecture}\n"
    for line in lines("dpkg-query", "-W", "-f", form, *packages):
        name, version, architecture = line.split("\t")
        purl = f"pkg:deb/debian/{name}@{version.replace('+', '%2B')}?arch={architecture}&distro={distribution}"
        yield {"type": "library", "bom-ref": purl, "name": name, "version": version, "purl": purl}


def crates():
    form = "{p}\t{l}"
    seen = set(lines("cargo", "tree", "--locked", "-p", "twinprobe", "-e", "normal", "--prefix", "none", "-f", form))
    for line in sorted(seen):
        crate, _, licence = line.removesuffix(" (*)").partition("\t")
        name, version, *rest = crate.split(" ")
        if rest and rest[0].startswith("(/"):
            continue
        version = version.removeprefix("v")
        purl = f"pkg:cargo/{name}@{version.replace('+', '%2B')}"
        component = {"type": "library", "bom-ref": purl, "name": name, "version": version, "purl": purl}
        if licence:
            component["licenses"] = [{"expression": licence.replace("/", " OR ")}]
        yield component


def main(root):
    version = json.loads("".join(lines("cargo", "metadata", "--no-deps", "--format-version", "1")))["packages"]
    version = next(package["version"] for package in version if package["name"] == "twinprobe")
    components = {component["bom-ref"]: component for component in [*debian(owners(root)), *crates()]}
    json.dump(
        {
            "bomFormat": "CycloneDX",
            "specVersion": "1.5",
            "version": 1,
            "metadata": {"component": {"type": "container", "bom-ref": "twinprobe", "name": "twinprobe", "version": version}},
            "components": list(components.values()),
        },
        sys.stdout,
        indent=1,
    )
    print()


main(pathlib.Path(sys.argv[1]).resolve())
