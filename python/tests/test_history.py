"""The past of a filter: its operations, readers as of moments, and filters restored from them."""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest

import ebbtide

from .test_fork import in_child
from .test_gil import SOON, lets_others_run

NOON = datetime(2025, 6, 2, 12, tzinfo=timezone.utc)


def all_of(path: str, durable: bool = True) -> list[ebbtide.Operation]:
    commits = ebbtide.history(path, durable=durable)
    return [operation for commit in commits for operation in commit.operations]


@pytest.fixture
def past(path: str) -> tuple[str, list[tuple[str, int]]]:
    """A filter that keeps its log: its path, and moments with the number of keys then."""
    moments = []
    for run in range(4):
        spec = ebbtide.Fingerprint(last=10_000, fpr=1e-9)
        with ebbtide.open(
            path, spec, segment_bytes=4096, keep_log="1GiB", durability="always"
        ) as seen:
            seen.insert_all(f"{run} {number}" for number in range(200))
            moments.append((f"lsn:{seen.stat().lsn - 1}", 200 * (run + 1)))
            seen.checkpoint()
    return path, moments


def keys(count: int = 800) -> list[str]:
    return [f"{number // 200} {number % 200}" for number in range(count)]


@pytest.mark.parametrize(
    ("keep", "shown"),
    [
        ("24h", "24h"),
        (timedelta(days=1), "24h"),
        (timedelta(milliseconds=1500), "1500ms"),
        ("1h 30m", "90m"),
        ("10GiB", "10GiB"),
        ("10 GiB", "10GiB"),
        ("nothing", "nothing"),
        (None, "nothing"),
    ],
)
def test_a_filter_keeps_as_much_of_its_log_as_the_call_says(
    path: str, keep: timedelta | str | None, shown: str
) -> None:
    spec = ebbtide.Fingerprint(last=1000)
    with ebbtide.open(path, spec, keep_log=keep) as seen:
        again = ebbtide.open(f"{path}-2", spec, keep_log=shown)
        assert seen.stat().keep_log == again.stat().keep_log
        again.close()
        kept = seen.stat().keep_log
        assert (kept == "nothing") == (shown == "nothing")
    with ebbtide.open(path) as seen:
        assert seen.stat().keep_log == kept, "it belongs to the filter"
    with ebbtide.open(path, keep_log="nothing") as seen:
        stat = seen.stat()
        assert (stat.keep_log, stat.kept_log_from, stat.kept_log_for) == ("nothing", None, None)
        assert stat.kept_log_bytes == 0 and not stat.kept_log_is_short


def test_statistics_say_what_is_kept(past: tuple[str, list[tuple[str, int]]]) -> None:
    path, _ = past
    with ebbtide.Reader(path) as reader:
        stat = reader.stat()
    assert stat.kept_log_from == 0 and stat.kept_log_bytes > 0 and not stat.kept_log_is_short
    assert stat.kept_log_for is None or stat.kept_log_for >= timedelta(0)


@pytest.mark.parametrize(
    "keep", ["much", "", "-1h", timedelta(days=-1), "24", "0", "0s", timedelta(0)]
)
def test_an_amount_of_log_that_is_none_is_refused(path: str, keep: timedelta | str) -> None:
    with pytest.raises(ebbtide.BadParameter, match="keep.log"):
        ebbtide.open(path, ebbtide.Bloom(1000), keep_log=keep)
    for wrong in (3600, 1.5, True, b"24h"):
        with pytest.raises(TypeError, match="keep_log"):
            ebbtide.open(path, ebbtide.Bloom(1000), keep_log=wrong)  # type: ignore[arg-type]
    assert not os.path.exists(path)


def test_what_is_kept_survives_an_opening_that_is_refused_for_its_spec(
    past: tuple[str, list[tuple[str, int]]],
) -> None:
    path, moments = past
    for create in (None, False):
        with pytest.raises(ebbtide.Mismatch) as caught:
            ebbtide.open(path, ebbtide.Fingerprint(last=5), create=create, keep_log="nothing")
        assert (caught.value.what, caught.value.expected) == ("window-items", "5")
        assert caught.value.found == "10000"
    with ebbtide.Reader(path) as reader:
        assert reader.stat().keep_log == "1073741824B"
    assert ebbtide.Reader(path, at=moments[0][0]).digest().inserts == moments[0][1]


def test_a_reader_as_of_a_moment_answers_as_the_filter_did_then(
    past: tuple[str, list[tuple[str, int]]],
) -> None:
    path, moments = past
    for at, count in moments:
        with ebbtide.Reader(path, at=at) as reader:
            found = reader.contains_all(keys())
            assert found[:count] == b"\x01" * count and sum(found) < count + 50, at
            assert reader.digest().inserts == count
            assert f" as of {at}>" in repr(reader)
            again = pickle.loads(pickle.dumps(reader))
            assert again.digest() == reader.digest()

            def same(reader: ebbtide.Reader = reader) -> bool:
                return reader.digest() == again.digest()

            in_child(same)
            again.close()
    assert ebbtide.Reader(path).digest().inserts == 800


def test_a_time_with_a_zone_is_the_moment_before_the_first_later_operation(path: str) -> None:
    minute = timedelta(minutes=1)
    with ebbtide.open(path, ebbtide.TimeLimited("10m"), keep_log="24h") as seen:
        for number in range(3):
            seen.insert(str(number), time=NOON + number * minute)
    zone = timezone(timedelta(hours=2))
    for at, expected in [
        (NOON - minute, b"\0\0\0"),
        (NOON, b"\1\0\0"),
        ((NOON + minute).astimezone(zone), b"\1\1\0"),
        (NOON + 1.5 * minute, b"\1\1\0"),
        (NOON + 5 * minute, b"\1\1\1"),
    ]:
        with ebbtide.Reader(path, at=at) as reader:
            assert reader.contains_all(["0", "1", "2"]) == expected, at
            with pickle.loads(pickle.dumps(reader)) as again:
                assert again.digest() == reader.digest()
    later = [commit.operations[0] for commit in ebbtide.history(path, after=NOON)]
    assert [operation.time for operation in later] == [NOON + minute, NOON + 2 * minute]


def test_a_position_is_the_moment_before_it_got_beyond(path: str, tmp_path: Path) -> None:
    with ebbtide.open(path, ebbtide.Fingerprint(last=1000), keep_log="24h") as seen:
        for number in range(3):
            with seen.batch() as batch:
                batch.check_and_insert(f"key {number}")
                batch.set_position(7, 10 * (number + 1))
    with ebbtide.Reader(path, at="position:7=20") as reader:
        assert reader.contains_all(["key 0", "key 1", "key 2"]) == b"\1\1\0"
        assert reader.position(7) == 20
    new = str(tmp_path / "restored")
    ebbtide.restore(path, new, at="position:7=10")
    with ebbtide.open(new) as seen:
        assert seen.position(7) == 10 and "key 0" in seen and "key 1" not in seen
    last = list(ebbtide.history(path, after="position:7=20"))
    assert [operation.kind for operation in last[0].operations] == ["insert", "position"]
    assert len(last) == 1 and last[0].operations[1].position == 30


def test_a_filter_is_restored_as_of_a_moment_beside_a_writer(
    past: tuple[str, list[tuple[str, int]]], tmp_path: Path
) -> None:
    path, moments = past
    with ebbtide.open(path) as seen:
        for number, (at, count) in enumerate(moments):
            seen.insert(f"meanwhile {number}")
            new = str(tmp_path / str(number))
            ebbtide.restore(path, new, at=at)
            with ebbtide.open(new) as again, ebbtide.Reader(path, at=at) as then:
                assert again.digest().value == then.digest().value
                assert again.stat().inserts == count and again.check_and_insert("new")
            with pytest.raises(ebbtide.Exists):
                ebbtide.restore(path, new, at=at)


CALLS: list[Callable[[str, object], object]] = [
    lambda path, at: ebbtide.Reader(path, at=at),  # type: ignore[arg-type]
    lambda path, at: ebbtide.history(path, after=at),  # type: ignore[arg-type]
    lambda path, at: ebbtide.restore(path, f"{path}-new", at=at),  # type: ignore[arg-type]
]


@pytest.mark.parametrize("call", CALLS)
def test_what_is_no_moment_is_refused(
    call: Callable[[str, object], object], past: tuple[str, list[tuple[str, int]]]
) -> None:
    path, _ = past
    with pytest.raises(ValueError, match=r"(at|after): a datetime without a time zone"):
        call(path, datetime(2025, 6, 2))
    for text in ["", "lsn", "lsn:", "lsn:-1", "position:7", "position:=1", "yesterday", "LSN:1"]:
        with pytest.raises(ebbtide.BadParameter, match="position:SOURCE=N"):
            call(path, text)
    for wrong in [5, 1.5, b"lsn:5", timedelta(1)]:
        with pytest.raises(TypeError, match="position:SOURCE=N"):
            call(path, wrong)
    assert not os.path.exists(f"{path}-new/meta")


@pytest.mark.parametrize("call", CALLS)
def test_a_moment_that_is_not_kept_is_an_error_with_the_records_that_are(
    call: Callable[[str, object], object], path: str
) -> None:
    for run in range(4):
        with ebbtide.open(path, ebbtide.Fingerprint(last=10_000), segment_bytes=4096) as seen:
            seen.insert_all(f"{run} {number}" for number in range(1000))
            seen.checkpoint()
    with pytest.raises(ebbtide.NotKept) as raised:
        call(path, "lsn:3")
    error = raised.value
    assert (error.name, error.code, error.path, error.wanted) == ("not-kept", 24, path, "lsn:3")
    assert 3 < error.first < error.end and str(error.first) in str(error)
    again = pickle.loads(pickle.dumps(error))
    assert vars(again) == vars(error) and type(again) is ebbtide.NotKept


def test_the_operations_of_several_runs_come_once_and_in_order(
    past: tuple[str, list[tuple[str, int]]],
) -> None:
    path, moments = past
    commits = list(ebbtide.history(path))
    operations = [commit.operations[0] for commit in commits]
    assert len(commits) == 800 and len({operation.hash for operation in operations}) == 800
    assert all(len(commit.operations) == 1 for commit in commits)
    assert [commit.lsn for commit in commits] == sorted({commit.lsn for commit in commits})
    assert [one.lsn for one in operations] == [commit.lsn for commit in commits]
    assert {(operation.kind, operation.weight) for operation in operations} == {("insert", 1)}
    assert len({commit.timeline for commit in commits}) == 4
    for at, count in moments:
        assert list(ebbtide.history(path, at)) == commits[count:]
    log = ebbtide.history(path)
    first = [next(log) for _ in range(300)]
    assert first == commits[:300]
    assert list(ebbtide.history(path, f"lsn:{log.position - 1}")) == commits[300:]
    with pytest.raises(AttributeError):
        commits[0].lsn = 5  # type: ignore[misc]


def test_every_kind_of_operation_has_what_belongs_to_it(path: str) -> None:
    with ebbtide.open(path, ebbtide.Counting(1000), keep_log="24h", durability="always") as seen:
        seen.insert("a", weight=3)
        seen.remove("a")
        seen.clear()
    insert, remove, clear = all_of(path)
    assert (insert.kind, remove.kind, clear.kind) == ("insert", "remove", "clear")
    assert insert.hash == remove.hash is not None and (insert.weight, remove.weight) == (3, 1)
    assert clear.hash is clear.weight is clear.source is clear.token is None

    path += "-claims"
    with ebbtide.open(path, ebbtide.Fingerprint(window="1h"), durability="always") as seen:
        begun = datetime.now(timezone.utc)
        with seen.claim("job", lease="90s") as claim:
            token = claim.token
    commits = list(ebbtide.history(path))
    (held,), (confirmed, released) = (commit.operations for commit in commits)
    assert (held.kind, held.token, held.lease) == ("claim", token, timedelta(seconds=90))
    assert held.time is not None and abs(held.time - begun) < timedelta(minutes=1)
    assert (confirmed.kind, confirmed.weight) == ("insert", 1)
    assert (released.kind, released.token, released.lease) == ("release", token, None)
    assert held.hash == confirmed.hash == released.hash and commits[1].lsn == released.lsn


def test_what_is_not_durable_comes_only_when_asked_for(path: str) -> None:
    with ebbtide.open(path, ebbtide.Bloom(1000), durability="never", background=False) as seen:
        seen.insert("a")
        assert all_of(path) == [] and len(all_of(path, durable=False)) == 1
        log = ebbtide.history(path)
        assert log.wait(0.01) is None
        seen.sync()
        commit = log.wait("1m")
        assert commit is not None and commit.operations[0].kind == "insert"
        assert log.wait(timedelta(0)) is None and list(log) == []


def test_other_threads_run_and_interrupts_arrive_while_it_waits(seen: ebbtide.Filter) -> None:
    log = ebbtide.history(seen.path)
    assert log.wait(0.2) is None and lets_others_run(lambda: log.wait(0.2))
    timer = threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT))
    start = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        timer.start()
        log.wait()
    assert time.monotonic() - start < 0.3 + SOON
    timer.join()
    inserter = threading.Timer(0.1, lambda: (seen.insert("a"), seen.sync()))
    inserter.start()
    commit = log.wait(timeout=60)
    assert commit is not None and commit.operations[0].kind == "insert"
    inserter.join()
    for wrong in ("soon", -1, "1"):
        with pytest.raises(ebbtide.BadParameter):
            log.wait(wrong)


def test_a_history_is_its_process_s_and_each_commit_comes_to_one_thread(
    past: tuple[str, list[tuple[str, int]]],
) -> None:
    path, _ = past
    log = ebbtide.history(path)

    def refused() -> bool:
        with pytest.raises(ebbtide.Forked):
            next(log)
        return len(list(ebbtide.history(path))) == 800

    in_child(refused)
    heard: list[ebbtide.Commit] = []
    threads = [threading.Thread(target=lambda: heard.extend(log)) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(heard, key=lambda commit: commit.lsn) == list(ebbtide.history(path))


def test_an_operation_names_its_key_by_the_hash_that_the_filter_gives_it(path: str) -> None:
    with ebbtide.open(path, "time-limited window=1h", durability="always") as seen:
        seen.insert("a", time=NOON)
        seen.insert(b"b")
        seen.claim("c", lease="1h").keep()
        seen.sync()
        timed, clocked, claimed = all_of(path)
        assert [one.hash for one in (timed, clocked, claimed)] == [
            seen.key_hash(key) for key in ("a", bytearray(b"b"), "c")
        ]
        assert (timed.is_stream_time, clocked.is_stream_time) == (True, False)
        assert timed.time == NOON
        assert [one.hash for one in seen.claims()] == [seen.key_hash("c")]
        with pytest.raises(TypeError, match="a key is"):
            seen.key_hash(7)  # type: ignore[arg-type]

        def same() -> bool:
            return seen.key_hash("a") == timed.hash

        in_child(same)
    with pytest.raises(ebbtide.Closed):
        seen.key_hash("a")


WRITER = """
import ebbtide, sys
seen = ebbtide.open(sys.argv[1])
for number in range(int(sys.argv[2]), 10**9):
    seen.insert(f"key {number}")
    print(number, flush=True)
"""


@pytest.mark.parametrize("durable", [True, False])
def test_followed_beside_writers_that_are_killed_each_key_comes_once(
    path: str, durable: bool
) -> None:
    spec = ebbtide.Fingerprint(last=100_000)
    ebbtide.open(path, spec, hash_seed=7, segment_bytes=4096, keep_log="1GiB").close()
    log, heard, ended = ebbtide.history(path, durable=durable), [], threading.Event()

    def follow() -> None:
        while not ended.is_set():
            while (commit := log.wait(0.05)) is not None:
                heard.append(commit)

    follower = threading.Thread(target=follow)
    follower.start()
    first = 0
    try:
        for _ in range(4):
            writer = subprocess.Popen(
                [sys.executable, "-c", WRITER, path, str(first)], stdout=subprocess.PIPE, text=True
            )
            assert writer.stdout is not None
            for _ in range(300):
                assert writer.stdout.readline()
            writer.kill()
            rest = writer.communicate()[0].splitlines()
            first = max(int(line) for line in rest) + 1 if rest else first + 300
        with ebbtide.open(path) as seen:
            seen.insert("the last")
    finally:
        ended.set()
        follower.join()
    heard.extend(log)
    assert heard == list(ebbtide.history(path))
    hashes = [operation.hash for commit in heard for operation in commit.operations]
    # The key at which a writer was killed may come again from the next one.
    assert first + 1 <= len(hashes) <= first + 5 and len(set(hashes)) in (first + 1, first + 2)
