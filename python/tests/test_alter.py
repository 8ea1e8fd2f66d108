"""Other parameters for filters in use, and filters made from the logs of others."""

from __future__ import annotations

import fcntl
import multiprocessing
import multiprocessing.synchronize
import os
import pickle
import struct
import threading
import time
from collections.abc import Callable
from datetime import timedelta

import pytest

import ebbtide

from .test_fork import in_child
from .test_gil import counting, runs_on

NARROW = ebbtide.Fingerprint(last=100, fpr=1e-9)
WIDE = ebbtide.Fingerprint(last=100_000, fpr=1e-9)


def keys(count: int, begin: int = 0) -> list[str]:
    return [f"key {number}" for number in range(begin, begin + count)]


def test_what_another_call_has_changed_stays_when_an_object_opens_its_filter_again(
    path: str,
) -> None:
    week = "7d"
    with ebbtide.open(path, NARROW, stripes=1, keep_log="24h") as seen:
        seen.insert("a")
        with ebbtide.open(path, keep_log=week) as operator:
            kept = operator.stat().keep_log
            # A filter of this size has more stripes.
            operator.alter(ebbtide.Fingerprint(last=10_000_000))

        def work() -> bool:
            return "a" in seen and seen.stat().keep_log == kept

        in_child(work)
        assert "a" in seen and seen.stat().keep_log == kept
        with pickle.loads(pickle.dumps(seen)) as again:
            assert "a" in again and again.stat().keep_log == kept


def test_other_threads_run_while_an_object_follows_an_alteration(path: str) -> None:
    with ebbtide.open(path, NARROW, keep_log="24h") as seen, ebbtide.open(path) as second:
        seen.insert("a")
        seen.alter(ebbtide.Fingerprint(last=2_000))
        # As the process does that opens or alters a filter.
        locks = os.open(os.path.join(path, "lock"), os.O_RDWR)
        record = struct.pack("hhqqi4x", fcntl.F_WRLCK, os.SEEK_SET, 0, 1, 0)
        fcntl.fcntl(locks, fcntl.F_OFD_SETLK, record)
        looks: list[Callable[[], object]] = [
            lambda: second.kind,
            lambda: second.parameters,
            lambda: repr(second),
            lambda: second.distinct_within(5),
        ]
        with counting() as count:
            threads = [threading.Thread(target=look) for look in looks]
            for thread in threads:
                thread.start()
            time.sleep(0.2)
            # All of them wait.
            assert runs_on(count) and any(thread.is_alive() for thread in threads)
            os.close(locks)
            for thread in threads:
                thread.join()
        assert second.parameters["window-items"] == "2000"


def outlived(path: str, keep_log: str | None = None) -> None:
    """Creates a filter that has had more than its log has."""
    for run in range(4):
        with ebbtide.open(path, NARROW, segment_bytes=4096, keep_log=keep_log) as seen:
            seen.insert_all(keys(1000, 1000 * run))
            seen.checkpoint()


def test_an_altered_filter_has_again_what_had_left_the_window(path: str) -> None:
    with ebbtide.open(path, NARROW, keep_log="24h") as seen, ebbtide.open(path) as second:
        seen.insert_all(keys(1000))
        assert "key 0" not in seen
        altered = seen.alter(WIDE)
        assert altered.is_whole and altered.operations == 1000 and altered.since is not None
        assert timedelta(0) < altered.stopped < timedelta(minutes=1)
        assert sum(seen.contains_all(keys(1000))) == 1000
        assert seen.parameters["window-items"] == "100000" and "100000" in repr(seen)
        # Another object continues with it.
        second.insert("key 1000")
        assert sum(second.contains_all(keys(1001))) == 1001 and "key 1000" in seen
        assert second.parameters == seen.parameters
        with ebbtide.Reader(path, at=f"lsn:{altered.lsn - 1}") as before:
            assert before.parameters["window-items"] == "100" and "key 0" not in before
        again = pickle.loads(pickle.dumps(seen))
        assert "key 0" in again and again.parameters == seen.parameters
        again.close()
        with pytest.raises(AttributeError):
            altered.lsn = 5  # type: ignore[misc]
    assert seen.parameters["window-items"] == "100000", "also when it is closed"
    assert ebbtide.verify(path)
    with pytest.raises(ebbtide.Mismatch):
        ebbtide.open(path, NARROW)


def test_a_window_of_inserts_becomes_one_of_time(path: str) -> None:
    with ebbtide.open(path, NARROW, keep_log="24h") as seen, ebbtide.open(path) as second:
        reader = ebbtide.Reader(path)
        present, counts = ebbtide.Reader(path), ebbtide.Reader(path)
        seen.insert_all(keys(500))
        assert reader.seen_within("key 499", 50)
        seen.alter("time-limited window=1h")
        # The first question of each after the alteration.
        assert present.seen_within("key 0", "10m")
        assert counts.distinct_within("10m").keys == pytest.approx(500, rel=0.2)
        present.close()
        counts.close()
        assert seen.kind == "time-limited" and seen.seen_within("key 0", "10m")
        age = seen.age("key 0")
        assert isinstance(age, timedelta) and age < timedelta(minutes=10)
        second.insert("one more")
        assert second.kind == "time-limited" and second.seen_within("one more", timedelta(hours=1))
        assert sum(reader.contains_all(keys(500))) == 500
        assert reader.kind == "time-limited" and reader.seen_within("key 0", "10m")
        reader.close()
        assert reader.kind == "time-limited"


def test_a_filter_that_would_forget_is_altered_only_when_told_to(path: str) -> None:
    outlived(path)
    with ebbtide.open(path) as seen:
        with pytest.raises(ebbtide.NotKept) as raised:
            seen.alter(WIDE)
        assert raised.value.path == path and raised.value.first > 0
        assert seen.parameters["window-items"] == "100" and "key 3999" in seen
        altered = seen.alter(WIDE, forget=True)
        assert not altered.is_whole and 0 < altered.operations < 4000
        assert "key 0" not in seen and "key 3999" in seen
        seen.insert("one more")
        altered = seen.alter(ebbtide.Fingerprint(last=50), forget=True)
        assert altered.operations == 1 and "one more" in seen, "the log has begun anew"
        with pytest.raises(TypeError, match="forget"):
            seen.alter(WIDE, forget="yes")  # type: ignore[arg-type]


def test_a_plan_says_what_the_alteration_will_then_do(path: str) -> None:
    with ebbtide.open(path, NARROW, keep_log="24h") as seen:
        seen.insert_all(keys(1000))
        for _ in range(2):
            plan = ebbtide.plan_alteration(path, WIDE)
            assert plan.has_window and plan.first_lsn == 1 and plan.records >= 1000
        digest = seen.digest()
        assert digest.lsn == plan.records + 1, "it has changed nothing"
        altered = seen.alter(WIDE)
        assert altered.is_whole and altered.since == plan.since and altered.since is not None
        assert plan.memory_after == ebbtide.plan_alteration(path, NARROW).memory_before
        assert plan.memory_before < plan.memory_after
    with ebbtide.Reader(path):
        assert ebbtide.plan_alteration(path, "bloom capacity=10").has_window, "also when closed"


def test_a_plan_for_a_log_that_is_too_short_says_that_keys_would_be_forgotten(path: str) -> None:
    outlived(path)
    with ebbtide.open(path) as seen:
        plan = ebbtide.plan_alteration(path, WIDE)
        assert not plan.has_window and plan.first_lsn > 1
        with pytest.raises(ebbtide.NotKept):
            seen.alter(WIDE)
        assert ebbtide.plan_alteration(path, "fingerprint last=50").has_window
        seen.alter("fingerprint last=50")


def test_a_plan_of_what_cannot_be_is_refused(path: str) -> None:
    with pytest.raises(ebbtide.NotAFilter):
        ebbtide.plan_alteration(path, WIDE)
    ebbtide.open(path, NARROW).close()
    with pytest.raises(ebbtide.BadParameter, match="fpr"):
        ebbtide.plan_alteration(path, ebbtide.Fingerprint(last=100, fpr=2.0))
    with pytest.raises(ebbtide.BadParameter, match="kind"):
        ebbtide.plan_alteration(path, "no-kind last=100")
    with pytest.raises(TypeError, match="ebbtide.Fingerprint"):
        ebbtide.plan_alteration(path, 5)  # type: ignore[arg-type]


def test_what_cannot_be_is_refused_and_leaves_the_filter_as_it_is(path: str) -> None:
    with ebbtide.open(path, NARROW, keep_log="24h") as seen:
        seen.insert("a")
        with pytest.raises(ebbtide.BadParameter, match="fpr"):
            seen.alter(ebbtide.Fingerprint(last=100, fpr=2.0))
        with pytest.raises(ebbtide.BadParameter, match="kind"):
            seen.alter("no-kind last=100")
        with pytest.raises(TypeError, match="ebbtide.Fingerprint"):
            seen.alter(5)  # type: ignore[arg-type]
        assert seen.parameters["window-items"] == "100" and "a" in seen
    with pytest.raises(ebbtide.Closed):
        seen.alter(WIDE)
    important = f"{path}-2"
    with ebbtide.open(important, ebbtide.Importance2c(1000, 7, 5, 20), keep_log="24h") as seen:
        seen.insert("a", weight=3)
        with pytest.raises(ebbtide.Mismatch, match="importances"):
            seen.alter(WIDE)


def write(path: str, begin: int, stop: multiprocessing.synchronize.Event) -> None:
    with ebbtide.open(path) as seen:
        for number in range(begin, begin + 1_000_000):
            seen.insert(f"key {number}")
            if stop.is_set():
                break
        # A busy machine may need longer for what happens meanwhile than for a million keys.
        if stop.wait(600):
            os._exit(0 if f"key {begin}" in seen else 1)
    os._exit(2)


def test_threads_and_processes_write_meanwhile(path: str) -> None:
    spec = ebbtide.Fingerprint(last=10_000_000)
    context = multiprocessing.get_context("spawn")
    stop = context.Event()
    with ebbtide.open(path, spec, keep_log="24h") as seen:
        seen.insert_all(keys(100_000))
        writers = [
            context.Process(target=write, args=(path, begin, stop))
            for begin in (10_000_000, 20_000_000)
        ]
        for writer in writers:
            writer.start()
        inserted, ended = [0], threading.Event()

        def insert() -> None:
            # With those of the others, fewer than the window has.
            while not ended.is_set() and inserted[0] < 1_000_000:
                seen.insert(f"mine {inserted[0]}")
                inserted[0] += 1

        thread = threading.Thread(target=insert)
        thread.start()
        try:
            for last in (1_000_000, 5_000_000):
                with counting() as count:
                    before = count[0]
                    altered = seen.alter(ebbtide.Fingerprint(last=last))
                    assert count[0] > before and altered.is_whole
        finally:
            ended.set()
            thread.join()
            stop.set()
        for writer in writers:
            writer.join(60)
            assert writer.exitcode == 0
        assert sum(seen.contains_all(keys(100_000))) == 100_000
        mine = [f"mine {number}" for number in range(inserted[0])]
        assert sum(seen.contains_all(mine)) == len(mine) > 0


def test_a_child_made_by_fork_continues_with_the_altered_filter(path: str) -> None:
    with ebbtide.open(path, NARROW, keep_log="24h") as seen:
        seen.insert_all(keys(500))
        inherited = ebbtide.open(path)

        def alter() -> bool:
            return inherited.alter(WIDE).operations == 500 and "key 0" in inherited

        in_child(alter)
        seen.insert("b")
        assert "key 0" in seen and seen.parameters["window-items"] == "100000"
        inherited.close()


def test_filters_are_united_divided_and_made_anew(path: str) -> None:
    for part in "ab":
        with ebbtide.open(f"{path}-{part}", NARROW, hash_seed=7) as seen:
            seen.insert_all(keys(300, 300 * (part == "b")))
    new = f"{path}-new"
    made = ebbtide.remake((f"{path}-{part}" for part in "ab"), new, WIDE, keep_log="24h")
    assert (made.operations, made.is_whole) == (600, True) and made.since is not None
    parts = [
        ebbtide.remake([new], f"{path}-part-{number}", WIDE, share=(number, 3))
        for number in range(3)
    ]
    assert sum(part.operations for part in parts) == 600
    assert all(part.operations > 100 for part in parts)
    with ebbtide.open(new) as seen:
        shares = [ebbtide.share_of(seen.key_hash(key), 3) for key in keys(600)]
    for number, part in enumerate(parts):
        assert part.operations == shares.count(number)
        with ebbtide.Reader(f"{path}-part-{number}") as reader:
            own = [key for key, share in zip(keys(600), shares) if share == number]
            assert all(reader.contains_all(own))
    with pytest.raises(ebbtide.BadParameter, match="count"):
        ebbtide.share_of(17, 0)
    with ebbtide.Reader(new) as reader:
        assert sum(reader.contains_all(keys(600))) == 600
        assert reader.stat().keep_log != "nothing"
    outlived(path)
    assert not ebbtide.remake([path], f"{path}-again", "bloom capacity=10k").is_whole


def test_what_cannot_be_made_is_refused_and_leaves_nothing(path: str) -> None:
    ebbtide.open(path, NARROW).close()
    ebbtide.open(f"{path}-2", NARROW).close()
    new = f"{path}-new"
    with pytest.raises(ebbtide.Mismatch, match="hash"):
        ebbtide.remake([path, f"{path}-2"], new, WIDE)
    with pytest.raises(ebbtide.BadParameter, match="share"):
        ebbtide.remake([path], new, WIDE, share=(3, 3))
    with pytest.raises(ebbtide.BadParameter, match="at least one"):
        ebbtide.remake([], new, WIDE)
    with pytest.raises(ebbtide.NotAFilter):
        ebbtide.remake([f"{path}-3"], new, WIDE)
    with pytest.raises(TypeError, match="several paths"):
        ebbtide.remake(path, new, WIDE)
    for wrong in (0, (0,), (-1, 2), ("0", 2)):
        with pytest.raises((TypeError, ValueError, OverflowError)):
            ebbtide.remake([path], new, WIDE, share=wrong)  # type: ignore[arg-type]
    assert not os.path.exists(new)
    with pytest.raises(ebbtide.Exists):
        ebbtide.remake([path], f"{path}-2", WIDE)
