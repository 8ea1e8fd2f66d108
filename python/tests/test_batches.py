"""Batches: nothing before the commit, all after it, and outputs written exactly once."""

from __future__ import annotations

import os
import pickle
import random
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

import ebbtide

from .conftest import EFFORT


def test_nothing_of_a_batch_is_there_before_its_commit(seen: ebbtide.Filter) -> None:
    batch = seen.batch()
    assert batch.check_and_insert("a") and not batch.check_and_insert("a")
    batch.insert(b"b")
    batch.set_position(3, 2**64 - 1)
    assert len(batch) == 3 and batch and "a" not in seen and seen.positions() == {}
    assert "3 operations" in repr(batch) and batch.path == seen.path
    batch.commit()
    assert "a" in seen and "b" in seen and seen.position(3) == 2**64 - 1
    assert len(batch) == 0 and not batch
    assert not batch.check_and_insert("a"), "it can be filled again"
    with ebbtide.Reader(seen.path) as reader:
        assert reader.positions() == {3: 2**64 - 1}


def test_an_exception_leaves_a_batch_without_effect(seen: ebbtide.Filter) -> None:
    with pytest.raises(ZeroDivisionError), seen.batch() as batch:
        batch.insert("a")
        batch.set_position(0, 1)
        raise ZeroDivisionError
    assert "a" not in seen and seen.position(0) is None and len(batch) == 0


def test_a_key_that_another_caller_inserted_is_a_conflict(seen: ebbtide.Filter) -> None:
    batch = seen.batch()
    assert batch.check_and_insert("other") and batch.check_and_insert("a")
    seen.insert("a")
    with pytest.raises(ebbtide.Conflict) as raised:
        batch.commit()
    error = raised.value
    assert (error.name, error.code, error.operation) == ("conflict", 21, 1)
    assert error.path == seen.path and "other" not in seen
    assert isinstance(pickle.loads(pickle.dumps(error)), ebbtide.Conflict)
    batch.clear()
    assert batch.check_and_insert("other") and not batch.check_and_insert("a")
    batch.commit()


def test_weights_and_times_come_with_keys(path: str) -> None:
    with ebbtide.open(path, ebbtide.Spectral(1000)) as sold:
        with sold.batch(durability="always") as batch:
            batch.insert("apples", weight=2**33)
            batch.insert("apples")
        assert sold.estimate("apples").count == 2**33 + 1
    with ebbtide.open(path + "-times", ebbtide.TimeLimited("10m")) as seen:
        now = time.time()
        with seen.batch() as batch:
            batch.insert("old", time=now - 3600)
            batch.insert("new", time=now)
            with pytest.raises(ebbtide.TimeAhead):
                batch.insert("future", time=now + 10**6)
        assert "old" not in seen and "new" in seen


@pytest.mark.parametrize("wrong", [-1, 2**64, 1.0, True, "1", None])
def test_sources_and_positions_are_whole_numbers(seen: ebbtide.Filter, wrong: object) -> None:
    batch = seen.batch()
    for arguments in ((wrong, 1), (1, wrong)):
        with pytest.raises(TypeError, match="whole number"):
            batch.set_position(*arguments)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="whole number"):
        seen.position(wrong)  # type: ignore[arg-type]
    assert not batch


def test_a_batch_of_a_closed_filter_says_so(path: str) -> None:
    seen = ebbtide.open(path, ebbtide.Bloom(1000))
    batch = seen.batch()
    batch.insert("a")
    seen.close()
    for use in (batch.commit, lambda: batch.check_and_insert("b"), seen.batch):
        with pytest.raises(ebbtide.Closed):
            use()


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_forked_child_makes_batches_of_its_own_only(seen: ebbtide.Filter) -> None:
    inherited = seen.batch()
    inherited.insert("inherited")
    child = os.fork()
    if child == 0:
        try:
            with seen.batch() as batch:
                batch.insert("of the child")
            inherited.commit()
        except ebbtide.Forked:
            os._exit(0)
        os._exit(1)
    assert os.waitpid(child, 0)[1] == 0
    assert "of the child" in seen and "inherited" not in seen
    inherited.commit()
    assert "inherited" in seen


def test_of_overlapping_batches_each_key_is_new_once(tmp_path: Path) -> None:
    # A window of more items than all threads insert: a thread that lags finds no key forgotten.
    seen = ebbtide.open(tmp_path / "filter", ebbtide.AgePartitioned(last=10_000))
    keys, new = list(range(300)), []

    def take(seed: int) -> None:
        order = random.Random(seed).sample(keys, len(keys))
        for start in range(0, len(order), 7):
            while True:
                batch = seen.batch()
                mine = [key for key in order[start : start + 7] if batch.check_and_insert(str(key))]
                try:
                    batch.commit()
                except ebbtide.Conflict:
                    continue
                new.extend(mine)
                break

    threads = [threading.Thread(target=take, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(new) == keys
    seen.close()


CONSUMER = """
import ebbtide, os, sys, time
source, output, state = sys.argv[1:]
INPUT, LENGTH = 0, 1
with ebbtide.open(state, ebbtide.Fingerprint(last=10_000), hash_seed=7) as seen:
    out = os.open(output, os.O_RDWR | os.O_CREAT)
    length = seen.position(LENGTH) or 0
    os.ftruncate(out, length)
    with open(source, "rb") as lines:
        lines.seek(seen.position(INPUT) or 0)
        while chunk := [line for _ in range(20) if (line := lines.readline())]:
            with seen.batch() as batch:
                new = b"".join(line for line in chunk if batch.check_and_insert(line))
                os.pwrite(out, new, length)
                batch.set_position(INPUT, lines.tell())
                batch.set_position(LENGTH, length + len(new))
            length += len(new)
            time.sleep(0.001)
"""


def test_a_killed_consumer_writes_each_line_exactly_once(tmp_path: Path) -> None:
    source, draw = tmp_path / "lines", random.Random(7)
    source.write_bytes(b"".join(b"%d\n" % draw.randrange(8000) for _ in range(20_000)))

    def consume(name: str) -> subprocess.Popen[bytes]:
        paths = [source, tmp_path / f"{name}.out", tmp_path / f"{name}.state"]
        return subprocess.Popen([sys.executable, "-c", CONSUMER, *map(str, paths)])

    assert consume("whole").wait(300) == 0
    whole, killed = (tmp_path / "whole.out").read_bytes(), tmp_path / "killed.out"
    killed.touch()
    kills = 0
    for _ in range(int(20 * EFFORT)):
        beyond = killed.stat().st_size + random.randrange(len(whole) // 8)
        process, end = consume("killed"), time.monotonic() + 60
        while process.poll() is None and killed.stat().st_size < beyond:
            assert time.monotonic() < end, "it hangs"
            time.sleep(0.001)
        time.sleep(random.uniform(0, 0.005))
        process.kill()
        if process.wait() == -signal.SIGKILL:
            kills += 1
            continue
        # It has read all: the next kill meets one that begins.
        assert process.returncode == 0 and killed.read_bytes() == whole
        shutil.rmtree(tmp_path / "killed.state")
        killed.write_bytes(b"")
    assert kills > 0 and consume("killed").wait(300) == 0
    assert killed.read_bytes() == whole
