"""The file system of a folder, by Linux's own list."""

from __future__ import annotations

from pathlib import Path

import pytest

from groupwise.system import files as file_system
from groupwise.system.files import find_file_system, is_shared_with_machines

LINES = """\
27 1 254:0 / / rw,relatime - ext4 /dev/vda rw
30 27 0:50 / /data rw,relatime shared:7 - nfs4 server:/export rw,vers=4.2,local_lock=none
31 30 0:51 / /data/own rw - xfs /dev/vdb rw
32 27 0:52 / /my\\040work rw - fuse.sshfs host:/ rw
33 27 0:53 / /twice rw - ext4 /dev/vdc rw
34 27 0:54 / /twice rw - lustre 10.0.0.1@tcp:/scratch rw,flock
nonsense
"""


@pytest.fixture
def mounts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "mountinfo"
    path.write_text(LINES)
    monkeypatch.setattr(file_system, "MOUNTS", path)
    return path


@pytest.mark.parametrize(
    ("folder", "kind", "is_shared"),
    [
        ("/data", "nfs4", True),
        ("/data/runs/first", "nfs4", True),
        ("/database", "ext4", False),
        ("/data/own/runs", "xfs", False),
        ("/my work/runs", "fuse.sshfs", True),
        ("/twice/runs", "lustre", True),
        ("/", "ext4", False),
    ],
)
@pytest.mark.usefixtures("mounts")
def test_the_innermost_mount_counts_and_of_several_at_a_place_the_last(folder: str, kind: str, is_shared: bool) -> None:
    assert (find_file_system(Path(folder)), is_shared_with_machines(Path(folder))) == (kind, is_shared)


def test_a_link_leads_to_where_the_files_are(mounts: Path, tmp_path: Path) -> None:
    mounts.write_text(f"{LINES}35 27 0:55 / {tmp_path / 'nfs'} rw - nfs server:/runs rw\n")
    (tmp_path / "nfs").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "nfs")
    assert find_file_system(tmp_path / "link" / "run") == "nfs"


def test_where_nothing_is_listed_a_folder_is_taken_for_local(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_system, "MOUNTS", tmp_path / "nowhere")
    assert find_file_system(tmp_path) == ""
    assert not is_shared_with_machines(tmp_path)
