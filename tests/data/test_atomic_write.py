"""Atomic file writes."""

import os

import pytest

from shoal.data.atomic_write import atomic_write
from shoal.formats.archive import remove_stale_files


@pytest.mark.parametrize("name", ["x" * 255, "x" * 251 + ".npy", "\u6f22" * 85, "\u00e9" * 127])
def test_names_as_long_as_a_file_system_allows(tmp_path, name):
    with atomic_write(tmp_path / name) as file:
        file.write(b"1")
    assert [path.name for path in tmp_path.iterdir()] == [name]


@pytest.mark.parametrize("name", ["x.npz", "x" * 255, "\u6f22" * 85])
def test_files_of_killed_processes_are_removed(tmp_path, monkeypatch, name):
    with monkeypatch.context() as patch:
        patch.setattr(os, "getpid", lambda: 2**22 + 1)  # above the largest process id
        patch.setattr("pathlib.Path.unlink", lambda *_, **__: None)
        with pytest.raises(KeyboardInterrupt), atomic_write(tmp_path / name):
            raise KeyboardInterrupt
    assert len(os.listdir(tmp_path)) == 1
    remove_stale_files(tmp_path / name)
    assert os.listdir(tmp_path) == []
