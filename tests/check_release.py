"""Checks what a release needs: metadata, one version everywhere, changelog, citation, committed pages, packages.

    python tests/check_release.py .release/bin

The folder has Python with `build`, `hatchling`, `twine` and `cffconvert`; `make release-check` installs them. Nothing
is uploaded. Exits with status 1 after an error; a warning names what the first release still lacks.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
import tomllib
import zipfile
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[1]
METADATA = (
    "authors",
    "classifiers",
    "description",
    "keywords",
    "license",
    "license-files",
    "readme",
    "requires-python",
)
IN_WHEEL = ("groupwise/py.typed", "groupwise/cli/demo.toml")
RELATIVE_LINK = re.compile(r"\]\((?!https?:|#|mailto:)")


def find_errors(root: Path) -> list[str]:
    """What is wrong in the files of the repository."""
    project = read_project(root)
    version = project["version"]
    errors = [f"pyproject.toml: [project] has no {key}" for key in METADATA if not project.get(key)]
    errors += [
        f"{place}: the version is {found or 'missing'}, expected {version} as in pyproject.toml"
        for place, found in find_versions(root).items()
        if found != version
    ]
    if not re.search(rf"^## {re.escape(version)}\b", read(root, "CHANGELOG.md"), re.MULTILINE):
        errors.append(f"CHANGELOG.md: there is no section for {version}")
    citation = yaml.safe_load(read(root, "CITATION.cff"))
    if citation.get("license") != project.get("license"):
        errors.append(f"CITATION.cff: the license is {citation.get('license')}, expected {project.get('license')}")
    return errors


def find_warnings(root: Path) -> list[str]:
    """What a first release still needs, and what nobody but its maintainers can fill in."""
    project = read_project(root)
    warnings = []
    if not project.get("urls"):
        warnings.append("pyproject.toml: [project.urls] is missing; add the address of the repository")
    if num_relative := len(RELATIVE_LINK.findall(read(root, project["readme"]))):
        warnings.append(
            f"{project['readme']}: {num_relative} relative links and pictures do not work on a package index; give "
            "them the address of the repository"
        )
    heading = re.search(rf"^## {re.escape(project['version'])}.*$", read(root, "CHANGELOG.md"), re.MULTILINE)
    if heading and "unreleased" in heading[0]:
        warnings.append("CHANGELOG.md: the section says unreleased; give it a date")
    if "date-released" not in yaml.safe_load(read(root, "CITATION.cff")):
        warnings.append("CITATION.cff: date-released is missing")
    return warnings


def find_versions(root: Path) -> dict[str, str]:
    """The version by place; empty = there is none."""
    patterns = {
        "src/groupwise/__init__.py": r'^__version__ = "(.+)"$',
        "README.md": r"groupwise-(\S+?)-py3-none-any\.whl",
        "CITATION.cff": r"^version: (\S+)$",
    }
    found = {place: re.search(pattern, read(root, place), re.MULTILINE) for place, pattern in patterns.items()}
    return {place: match[1] if match else "" for place, match in found.items()}


def find_stale_files() -> list[str]:
    """Files that are not committed, and generated pages that are not up to date."""
    status = run("git", "status", "--porcelain")[1].splitlines()
    errors = [f"not committed: {line[3:]}" for line in status[:5]]
    errors += [f"not committed: {len(status) - 5} other files"] if len(status) > 5 else []
    for script in sorted((ROOT / "docs").glob("build_*.py")):
        failed, printed = run(sys.executable, str(script), "--check")
        errors += [f"{script.name} --check: {(printed.splitlines() or ['failed'])[-1]}"] if failed else []
    return errors


def find_faults_of_packages(tools: Path, version: str) -> list[str]:
    """Build wheel and source archive, and check them as a package index does."""
    with tempfile.TemporaryDirectory() as folder:
        failed, printed = run(str(tools / "python"), "-m", "build", "--no-isolation", "--outdir", folder, str(ROOT))
        if failed:
            return [f"the packages cannot be built: {printed[-500:]}"]
        wheel, archive = (next(Path(folder).glob(f"groupwise-{version}{end}")) for end in ("-*.whl", ".tar.gz"))
        inside = zipfile.ZipFile(wheel).namelist()
        errors = [f"{wheel.name}: {name} is missing" for name in IN_WHEEL if name not in inside]
        for command in (("twine", "check", "--strict", str(wheel), str(archive)), ("cffconvert", "--validate")):
            failed, printed = run(str(tools / command[0]), *command[1:])
            errors += [f"{' '.join(command[:2])}: {printed[-500:]}"] if failed else []
    return errors


def run(*command: str) -> tuple[bool, str]:
    """Whether a command failed, and what it printed."""
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=600)
    return ran.returncode != 0, ran.stdout + ran.stderr


def read_project(root: Path) -> dict[str, Any]:
    project: dict[str, Any] = tomllib.loads(read(root, "pyproject.toml"))["project"]
    return project


def read(root: Path, name: str) -> str:
    return (root / name).read_text(encoding="utf-8")


def main(tools: Path) -> None:
    errors = [*find_errors(ROOT), *find_stale_files()]
    errors += find_faults_of_packages(tools, read_project(ROOT)["version"])
    for warning in find_warnings(ROOT):
        print(f"warning: {warning}")
    for error in errors:
        print(f"error: {error}")
    if errors:
        sys.exit(1)
    print("ready, except for the warnings")


if __name__ == "__main__":
    main(Path(sys.argv[1]).absolute())
