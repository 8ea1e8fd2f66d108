"""Python, Rust and the command line use the same live filter at once."""

from __future__ import annotations

import subprocess
import threading
from collections.abc import Callable
from pathlib import Path

import ebbtide

COUNT = 20_000


def keys(prefix: str) -> list[str]:
    return [f"{prefix}{number}" for number in range(COUNT)]


def test_all_of_them_see_what_each_of_them_inserts(
    path: str, command: Path, rust_worker: Callable[[str], Callable[[str], str]]
) -> None:
    with ebbtide.open(path, ebbtide.Fingerprint(last=1_000_000, fpr=1e-9)) as seen:
        worker = rust_worker(path)
        counts: list[str] = []
        others = threading.Thread(target=lambda: counts.append(worker(f"insert rust- {COUNT}")))
        shell = subprocess.Popen([command, "insert", path], stdin=subprocess.PIPE, text=True)
        others.start()
        assert shell.stdin is not None
        feed = threading.Thread(target=lambda: shell.communicate("\n".join(keys("shell-")) + "\n"))
        feed.start()
        assert seen.insert_all(keys("python-")) == COUNT
        others.join()
        feed.join()
        assert shell.returncode == 0 and counts == [str(COUNT)]
        for prefix in ("python-", "rust-", "shell-"):
            assert sum(seen.contains_all(keys(prefix))) == COUNT
            assert worker(f"ask {prefix} {COUNT}") == str(COUNT)
            answers = subprocess.run(
                [command, "contains", path],
                input="\n".join(keys(prefix)),
                capture_output=True,
                text=True,
                check=False,
            )
            assert answers.stdout.split() == ["1"] * COUNT
        with ebbtide.Reader(path) as reader:
            assert sum(reader.contains_all(keys("rust-"))) == COUNT
        printed = subprocess.run(
            [command, "digest", path], capture_output=True, text=True, check=True
        )
        digest = seen.digest()
        assert printed.stdout.split()[0] == digest.value == worker("digest")
        assert digest.inserts == 3 * COUNT


def test_of_all_that_check_the_same_new_keys_exactly_one_receives_new(
    path: str, command: Path
) -> None:
    with ebbtide.open(path, ebbtide.Fingerprint(last=1_000_000, fpr=1e-9)) as seen:
        text = "\n".join(keys("same-"))
        shell = subprocess.Popen(
            [command, "check", path], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        new: list[int] = []
        threads = [
            threading.Thread(
                target=lambda: new.append(seen.check_and_insert_all(keys("same-")).count(1))
            )
            for _ in range(2)
        ]
        for thread in threads:
            thread.start()
        printed, _ = shell.communicate(text)
        for thread in threads:
            thread.join()
        # `check` prints 0 for a key that is new.
        assert len(new) == 2 and printed.split().count("0") + sum(new) == COUNT


def test_the_same_operations_with_the_same_seed_give_the_same_digest_in_rust(
    tmp_path: Path, command: Path
) -> None:
    ours, theirs = str(tmp_path / "ours"), str(tmp_path / "theirs")
    with ebbtide.open(ours, "age-partitioned last=1k", hash_seed=7, stripes=2) as seen:
        seen.insert_all(keys("k"))
        digest = seen.digest().value
    options = ["--kind", "age-partitioned", "--window-items", "1k"]
    fixed = ["--hash-seed", "7", "--stripes", "2"]
    subprocess.run([command, "create", theirs, *options, *fixed], check=True)
    subprocess.run([command, "insert", theirs], input="\n".join(keys("k")), text=True, check=True)
    printed = subprocess.run([command, "digest", theirs], capture_output=True, text=True)
    assert printed.stdout.split()[0] == digest
