"""Python processes that are killed at random lose nothing that had returned."""

from __future__ import annotations

import multiprocessing
import os
import random
import signal
import struct
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

import ebbtide

from .conftest import EFFORT

KILLS = int(os.environ.get("EBBTIDE_KILLS", int(9 * EFFORT)))

#: A killed worker notes after each insert how far it has come, in a file that survives it.
NOTE = struct.Struct("<Q")
THREADS = 2


def work(path: str, notes: str, name: str) -> None:
    """Inserts keys in two threads, singly and in bulk, until it is killed."""
    seen = ebbtide.open(path)

    def insert(thread: int) -> None:
        note = os.open(f"{notes}/{name}-{thread}", os.O_RDWR | os.O_CREAT)
        number = 0
        while True:
            if number % 100 == 0:
                seen.insert_all([f"{name} {thread} {number + at}" for at in range(50)])
                number += 50
            else:
                seen.check_and_insert(f"{name} {thread} {number}")
                number += 1
            os.pwrite(note, NOTE.pack(number), 0)

    threads = [threading.Thread(target=insert, args=(at,)) for at in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_killed_workers_have_inserted_all_that_had_returned(tmp_path: Path, method: str) -> None:
    path, notes = str(tmp_path / "filter"), tmp_path / "notes"
    notes.mkdir()
    # A window longer than the test, and so few false positives that a lost key shows.
    ebbtide.open(path, ebbtide.Bloom(3_000_000, fpr=1e-6)).close()
    context = multiprocessing.get_context(method)
    for round in range(max(KILLS // 3, 1)):
        names = [f"{method} {round} {at}" for at in range(3)]
        workers = [context.Process(target=work, args=(path, str(notes), name)) for name in names]
        for worker in workers:
            worker.start()
        deadline = time.monotonic() + 60
        files = [notes / f"{name}-{thread}" for name in names for thread in range(THREADS)]
        while not all(file.exists() and file.stat().st_size for file in files):
            assert time.monotonic() < deadline, "the workers do not begin"
            time.sleep(0.01)
        time.sleep(random.uniform(0, 0.2))
        for worker in workers:
            assert worker.pid is not None
            os.kill(worker.pid, signal.SIGKILL)
        for worker in workers:
            worker.join(60)
            assert worker.exitcode == -signal.SIGKILL
        with ebbtide.open(path) as seen:
            for name in names:
                for thread in range(THREADS):
                    count = NOTE.unpack((notes / f"{name}-{thread}").read_bytes())[0]
                    assert count > 0
                    keys = [f"{name} {thread} {number}" for number in range(count)]
                    assert seen.contains_all(keys).count(0) == 0, (name, thread)
    assert ebbtide.verify(path).sound


def test_what_is_open_at_exit_is_closed(path: str) -> None:
    code = (
        "import ebbtide, sys\n"
        "seen = ebbtide.open(sys.argv[1], ebbtide.Bloom(1000))\n"
        "seen.insert('a')\n"
    )
    subprocess.run([sys.executable, "-W", "error", "-c", code, path], check=True)
    with ebbtide.open(path) as seen:
        assert "a" in seen and seen.stat().snapshots == 1


def test_one_that_cannot_be_closed_at_exit_is_named_and_keeps_no_other_one_open(path: str) -> None:
    code = (
        "import ebbtide, shutil, sys\n"
        "names = [sys.argv[1] + str(number) for number in range(6)]\n"
        "all = [ebbtide.open(name, ebbtide.Bloom(1000)) for name in names]\n"
        "[seen.insert('a') for seen in all]\n"
        "[shutil.rmtree(name) for name in names[::2]]\n"
    )
    done = subprocess.run([sys.executable, "-c", code, path], capture_output=True, text=True)
    assert done.returncode == 0
    said = done.stderr.splitlines()
    assert len(said) == 3 and all(line.startswith("ebbtide: ") for line in said), done.stderr
    for number in range(1, 6, 2):
        with ebbtide.open(f"{path}{number}") as seen:
            assert "a" in seen and seen.stat().snapshots == 1


def test_a_process_that_ends_without_closing_loses_nothing(path: str) -> None:
    code = (
        "import ebbtide, os, sys\n"
        "seen = ebbtide.open(sys.argv[1], ebbtide.Bloom(1000))\n"
        "seen.insert('a')\n"
        "os._exit(0)\n"
    )
    subprocess.run([sys.executable, "-c", code, path], check=True)
    with ebbtide.open(path) as seen:
        assert "a" in seen
