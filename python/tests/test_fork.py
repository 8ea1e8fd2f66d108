"""Objects in children made by fork, with threads inside calls."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
import time
import warnings
from collections.abc import Callable
from pathlib import Path

import pytest

import ebbtide

from .conftest import EFFORT

SECONDS = 60


def in_child(work: Callable[[], bool]) -> None:
    """Runs work in a child made by fork, which must end with True."""
    with warnings.catch_warnings():
        # Later versions of Python warn of forks of a process with threads.
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if child == 0:
        code = 1
        try:
            signal.alarm(SECONDS)
            code = 0 if work() else 2
        finally:
            os._exit(code)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0


def test_a_child_opens_the_filter_again_and_the_parent_sees_its_keys(
    seen: ebbtide.Filter,
) -> None:
    assert seen.check_and_insert("parent")

    def work() -> bool:
        known = "parent" in seen and not seen.check_and_insert("parent")
        new = seen.check_and_insert("child")
        return known and new and seen.stat().handles == 2

    in_child(work)
    assert "child" in seen and not seen.check_and_insert("child")


def test_every_method_opens_the_filter_again(path: str) -> None:
    with ebbtide.open(path, ebbtide.Counting(1000)) as counts:
        first: list[Callable[[], object]] = [
            lambda: counts.insert("a"),
            lambda: counts.insert_all(["a", "b"]),
            lambda: counts.contains_all(["a"]),
            lambda: counts.estimate("a"),
            lambda: counts.remove("a"),
            counts.stat,
            counts.digest,
            counts.sync,
            counts.checkpoint,
        ]
        for call in first:

            def work(call: Callable[[], object] = call) -> bool:
                return call() is not False and not counts.closed

            in_child(work)


def test_a_child_may_be_refused_instead(path: str) -> None:
    with ebbtide.open(path, ebbtide.Bloom(1000), reopen_after_fork=False) as seen:
        seen.insert("a")

        def work() -> bool:
            with pytest.raises(ebbtide.Forked, match="opened before this process was forked"):
                seen.insert("b")
            return True

        in_child(work)
        assert "b" not in seen


def test_a_child_that_closes_what_it_never_used_leaves_the_parent_alone(
    seen: ebbtide.Filter,
) -> None:
    def work() -> bool:
        seen.close()
        return seen.closed

    in_child(work)
    seen.insert("a")
    assert "a" in seen


def test_a_reader_is_opened_again_too(seen: ebbtide.Filter) -> None:
    seen.insert("a")
    with ebbtide.Reader(seen.path) as reader:
        in_child(lambda: "a" in reader and not reader.closed)


def test_forks_with_threads_inside_calls_leave_children_that_can_work(path: str) -> None:
    spec = ebbtide.Fingerprint(last=1_000_000, fpr=1e-9)
    stop = threading.Event()

    with ebbtide.open(path, spec, durability="1ms") as seen:

        def load(name: str) -> None:
            number = 0
            while not stop.is_set():
                seen.insert(f"{name}{number}")
                seen.insert_all([f"{name}{number} {key}" for key in range(200)])
                number += 1

        threads = [threading.Thread(target=load, args=(f"t{at}-",)) for at in range(3)]
        for thread in threads:
            thread.start()
        try:
            for number in range(int(60 * EFFORT)):
                key = f"child {number}"

                def work(key: str = key) -> bool:
                    at_once = [
                        threading.Thread(target=seen.insert, args=(f"{key} {thread}",))
                        for thread in range(3)
                    ]
                    for thread in at_once:
                        thread.start()
                    for thread in at_once:
                        thread.join()
                    seen.insert_all([key])
                    return key in seen

                in_child(work)
                assert key in seen and f"{key} 2" in seen
        finally:
            stop.set()
            for thread in threads:
                thread.join()
        assert seen.stat().handles == 1


def test_threads_of_a_child_that_open_the_filter_at_once_keep_one_handle(path: str) -> None:
    with ebbtide.open(path, ebbtide.Bloom(100_000)) as seen:

        def work() -> bool:
            barrier = threading.Barrier(8)

            def use(number: int) -> None:
                barrier.wait()
                seen.insert(f"thread {number}")

            threads = [threading.Thread(target=use, args=(number,)) for number in range(8)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            # The parent's, and one of the child.
            return seen.stat().handles == 2

        for _ in range(int(10 * EFFORT)):
            in_child(work)


def use(seen: ebbtide.Filter, name: str) -> bool:
    return seen.check_and_insert(name)


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_multiprocessing_passes_filters_to_its_processes(path: str, method: str) -> None:
    with ebbtide.open(path, ebbtide.Fingerprint(last=1000, fpr=1e-9)) as seen:
        context = multiprocessing.get_context(method)
        with context.Pool(2) as pool:
            names = [f"{method} {number % 5}" for number in range(10)]
            answers = pool.starmap(use, [(seen, name) for name in names])
        assert sum(answers) == 5
        assert all(name in seen for name in names)


def test_a_server_that_forks_workers_after_it_has_opened_the_filter(tmp_path: Path) -> None:
    """As gunicorn does with --preload, and Celery with its prefork pool."""
    path = str(tmp_path / "filter")
    seen = ebbtide.open(path, ebbtide.Fingerprint(last=100_000, fpr=1e-9))
    requests = [f"request {number}" for number in range(2000)]
    children = []
    for _ in range(4):
        child = os.fork()
        if child == 0:
            new = sum(seen.check_and_insert(request) for request in requests)
            (tmp_path / f"new-{os.getpid()}").write_text(str(new))
            os._exit(0)
        children.append(child)
    for child in children:
        os.waitpid(child, 0)
    new = [int((tmp_path / f"new-{child}").read_text()) for child in children]
    assert sum(new) == len(requests)
    assert not any(seen.check_and_insert(request) for request in requests)
    seen.close()


def test_a_killed_child_holds_nobody_up(path: str) -> None:
    with ebbtide.open(path, ebbtide.Bloom(100_000), stripes=1) as seen:
        child = os.fork()
        if child == 0:
            while True:
                seen.insert_all([f"child {number}" for number in range(1000)])
        time.sleep(0.2)
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        start = time.monotonic()
        seen.insert("parent")
        assert time.monotonic() - start < 30
