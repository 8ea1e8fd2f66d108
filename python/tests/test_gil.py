"""Other threads run on, and signals arrive, while a call takes its time."""

from __future__ import annotations

import asyncio
import itertools
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import ebbtide

#: What takes longer hangs: threads of a busy machine wait for seconds.
SOON = 30.0

#: How long an event is waited for.
LIMIT = 60.0


@contextmanager
def counting(pause: float | None = None) -> Iterator[list[int]]:
    """Runs a thread of Python code, and says how far it has come."""
    stop, count = threading.Event(), [0]

    def run() -> None:
        while not stop.is_set():
            count[0] += 1
            if pause is not None:
                time.sleep(pause)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield count
    finally:
        stop.set()
        thread.join()


def runs_on(count: list[int]) -> bool:
    """Returns whether the thread that counts runs now."""
    before, end = count[0], time.monotonic() + LIMIT
    while count[0] == before and time.monotonic() < end:
        time.sleep(0.01)
    return count[0] > before


@contextmanager
def giving_way_only_in_calls() -> Iterator[None]:
    """Makes no thread give way to others, unless it calls what lets them run."""
    interval = sys.getswitchinterval()
    sys.setswitchinterval(3600)
    try:
        yield
    finally:
        sys.setswitchinterval(interval)


def grows_during(count: list[int], call: Callable[[], object]) -> bool:
    """Returns whether another thread counts during a call; a busy machine needs several calls."""
    end = time.monotonic() + LIMIT
    while time.monotonic() < end:
        before = count[0]
        call()
        if count[0] > before:
            return True
    return False


def lets_others_run(call: Callable[[], object]) -> bool:
    """Returns whether other threads run during a call."""
    with giving_way_only_in_calls(), counting(pause=0.001) as count:
        return grows_during(count, call)


def test_other_threads_run_while_keys_are_inserted_in_bulk(path: str) -> None:
    with ebbtide.open(path, ebbtide.Bloom(1_000_000)) as seen:
        array = ebbtide.raw(memoryview(bytes(8 * 50_000)).cast("Q"))
        assert lets_others_run(lambda: seen.insert_all(array))


def test_other_threads_run_while_a_call_waits_for_the_disk(path: str) -> None:
    with ebbtide.open(path, ebbtide.Bloom(1000), durability="always") as seen:
        numbers = itertools.count()
        assert lets_others_run(lambda: seen.insert(str(next(numbers))))
        seen.sync()


CHILD = """
import ebbtide, sys
seen = ebbtide.open(sys.argv[1])
keys = [str(number) for number in range(20_000)]
print("open", flush=True)
while True:
    seen.insert_all(keys)
"""


@contextmanager
def held_up(path: str) -> Iterator[ebbtide.Filter]:
    """A filter whose one stripe is held by a stopped process."""
    with ebbtide.open(path, ebbtide.Bloom(100_000), stripes=1) as seen:
        child = subprocess.Popen(
            [sys.executable, "-c", CHILD, path], stdout=subprocess.PIPE, text=True
        )
        try:
            assert child.stdout is not None and child.stdout.readline() == "open\n"
            for _ in range(200):
                time.sleep(0.01)
                child.send_signal(signal.SIGSTOP)
                time.sleep(0.01)
                probe = threading.Thread(target=seen.insert, args=("probe",), daemon=True)
                probe.start()
                # Long, so that a busy machine is not taken for a stripe that is held.
                probe.join(5)
                if probe.is_alive():
                    break
                child.send_signal(signal.SIGCONT)
            else:
                pytest.skip("the process was never stopped while it held the stripe")
            yield seen
        finally:
            child.kill()
            child.communicate()
            probe.join(60)
            assert not probe.is_alive()


def test_a_stopped_process_holds_up_the_caller_of_its_stripe_and_no_other_thread(
    path: str,
) -> None:
    with held_up(path), counting() as count:
        # The thread that inserts waits; this one and another one do not.
        start = time.monotonic()
        time.sleep(0.2)
        assert time.monotonic() - start < SOON and runs_on(count)


def test_an_interrupt_arrives_while_a_stopped_process_holds_the_stripe(path: str) -> None:
    with held_up(path) as seen:
        timer = threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT))
        start = time.monotonic()
        with pytest.raises(KeyboardInterrupt):
            timer.start()
            seen.insert("a key")
        assert time.monotonic() - start < 0.3 + SOON
        timer.join()
        with pytest.raises(KeyboardInterrupt):
            threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()
            seen.insert_all(["a key", "another key"])
    # Nothing happened of the calls that were interrupted.
    with ebbtide.open(path) as seen:
        assert "a key" not in seen


def test_an_interrupt_ends_an_endless_bulk_call(seen: ebbtide.Filter) -> None:
    timer = threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT))
    start = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        timer.start()
        seen.insert_all(itertools.repeat("a"))
    assert time.monotonic() - start < 0.3 + SOON
    timer.join()


def test_an_event_loop_is_not_held_by_a_sync_in_a_thread(path: str) -> None:
    async def work(seen: ebbtide.Filter) -> list[bool]:
        turns = [0]
        batch = [str(number) for number in range(1000)]

        def check() -> bool:
            return grows_during(turns, lambda: seen.check_and_insert_all(batch))

        done = asyncio.gather(*(asyncio.to_thread(check) for _ in range(20)))
        while not done.done():
            turns[0] += 1
            await asyncio.sleep(0.001)
        return await done

    with ebbtide.open(path, ebbtide.Bloom(100_000), durability="always") as seen:
        with giving_way_only_in_calls():
            assert asyncio.run(work(seen)) == [True] * 20


def test_two_threads_do_not_deadlock_with_close(tmp_path: Path) -> None:
    for number in range(20):
        seen = ebbtide.open(tmp_path / str(number), ebbtide.Bloom(1000))

        def work(seen: ebbtide.Filter = seen) -> None:
            try:
                while True:
                    seen.insert("a")
            except ebbtide.Closed:
                pass

        threads = [threading.Thread(target=work) for _ in range(3)]
        for thread in threads:
            thread.start()
        time.sleep(0.01)
        seen.close()
        for thread in threads:
            thread.join(60)
            assert not thread.is_alive()
