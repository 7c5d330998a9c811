"""Files are written as a whole or not at all; devices, FIFOs and symbolic links stay what they are."""

from __future__ import annotations

import os
import stat
import threading
from pathlib import Path

import pytest

from cgr.errors import UsageError
from cgr.files import draft, make_folder, write_bytes, write_text


def names(folder: Path) -> set[str]:
    return {one.name for one in folder.iterdir()}


def write_half(path: Path, error: Exception) -> None:
    with draft(path) as place:
        place.write_text("new, but not comp")
        raise error


def test_a_new_file_and_its_folders(tmp_path: Path) -> None:
    write_text(tmp_path / "a" / "b" / "c.txt", "é\n")
    assert (tmp_path / "a" / "b" / "c.txt").read_bytes() == "é\n".encode()
    assert names(tmp_path / "a" / "b") == {"c.txt"}


def test_half_a_surrogate_pair_is_written_as_an_escape(tmp_path: Path) -> None:
    write_text(tmp_path / "a.txt", "x\ud800")
    assert (tmp_path / "a.txt").read_text() == "x\\ud800"


def test_a_failure_keeps_the_old_file_and_leaves_no_other(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    write_text(path, "old")
    with pytest.raises(ZeroDivisionError):
        write_half(path, ZeroDivisionError())
    assert (path.read_text(), names(tmp_path)) == ("old", {"a.txt"})


def test_an_interrupt_leaves_no_file(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt), draft(tmp_path / "a.txt"):
        raise KeyboardInterrupt
    assert names(tmp_path) == set()


def test_a_disk_that_is_full(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot be written: No space left") as caught:
        write_half(tmp_path / "a.txt", OSError(28, "No space left on device"))
    assert "Free some space" in caught.value.hint
    assert names(tmp_path) == set()


def test_permissions_are_kept(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    write_text(path, "old")
    path.chmod(0o640)
    write_text(path, "new")
    assert stat.S_IMODE(path.stat().st_mode) == 0o640


def test_a_symbolic_link_keeps_pointing_where_it_did(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "real" / "a.txt").write_text("old")
    for name, target in (("link", "real/a.txt"), ("dangling", "real/b.txt")):
        (tmp_path / name).symlink_to(target)
        write_text(tmp_path / name, "new")
        assert (tmp_path / name).is_symlink()
        assert (tmp_path / target).read_text() == "new"
    assert names(tmp_path / "real") == {"a.txt", "b.txt"}


def test_a_fifo_is_written_and_stays_a_fifo(tmp_path: Path) -> None:
    fifo, read = tmp_path / "fifo", list[bytes]()
    os.mkfifo(fifo)
    reader = threading.Thread(target=lambda: read.append(fifo.read_bytes()), daemon=True)
    reader.start()
    write_bytes(fifo, b"through the fifo")
    reader.join(60)
    assert read == [b"through the fifo"]
    assert stat.S_ISFIFO(fifo.stat().st_mode)


def test_a_device_stays_a_device() -> None:
    write_text(Path("/dev/null"), "x")
    assert stat.S_ISCHR(Path("/dev/null").stat().st_mode)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no /dev/full")
def test_a_full_device_says_so_and_stays() -> None:
    with pytest.raises(UsageError, match="/dev/full cannot be written: No space left"):
        write_text(Path("/dev/full"), "x")
    assert stat.S_ISCHR(Path("/dev/full").stat().st_mode)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("x" * 300, "cannot be written: File name too long"),
        ("x" * 300 + "/a.txt", "cannot be created: File name too long"),
        ("file/a.txt", "cannot be created: there is a file"),
        ("file/deeper/a.txt", "cannot be created"),
        ("folder", "cannot be written: it is a folder"),
        ("loop", "cannot be written"),
        ("null\0", "null character"),
        ("null\0/a.txt", "null character"),
    ],
)
def test_places_where_nothing_can_be_written(tmp_path: Path, name: str, message: str) -> None:
    (tmp_path / "file").write_text("")
    (tmp_path / "folder").mkdir()
    (tmp_path / "loop").symlink_to("loop")
    with pytest.raises(UsageError, match=message):
        write_text(tmp_path / name, "x")
    assert names(tmp_path) == {"file", "folder", "loop"}


def test_a_folder_that_exists_is_no_error(tmp_path: Path) -> None:
    make_folder(tmp_path)
    assert tmp_path.is_dir()
