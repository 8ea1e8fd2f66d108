"""Fixtures: directories, the command line and a Rust program beside the tests."""

from __future__ import annotations

import faulthandler
import os
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import ebbtide

REPOSITORY = Path(__file__).parents[2]

#: How many times random tests repeat, as a factor: 1 in CI on a change, more in long runs.
EFFORT = float(os.environ.get("EBBTIDE_PYTHON_EFFORT", "1"))


# A shell starts jobs in the background with SIGINT ignored; then no interrupt would ever arrive.
signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True)
def limit() -> Iterator[None]:
    """Ends the run, with the stacks of all threads, if a test takes ten minutes."""
    faulthandler.dump_traceback_later(600, exit=True)
    yield
    faulthandler.cancel_dump_traceback_later()


@pytest.fixture
def path(tmp_path: Path) -> str:
    """A directory that does not exist yet."""
    return str(tmp_path / "filter")


def _built(arguments: list[str], directory: Path, program: str) -> Path:
    """Builds a Rust program of the repository; skips the test where that is impossible."""
    cargo = shutil.which("cargo")
    if cargo is None or not (directory / "Cargo.toml").exists():
        pytest.skip("needs cargo and the repository")
    built = subprocess.run(
        [cargo, "build", "--quiet", *arguments], cwd=directory, capture_output=True, text=True
    )
    assert built.returncode == 0, built.stderr
    target = Path(os.environ.get("CARGO_TARGET_DIR", directory / "target"))
    return target / "debug" / program


@pytest.fixture(scope="session")
def command() -> Path:
    """The command line."""
    given = os.environ.get("EBBTIDE_COMMAND")
    return Path(given) if given else _built(["-p", "ebbtide-cli"], REPOSITORY, "ebbtide")


@pytest.fixture(scope="session")
def worker_program() -> Path:
    given = os.environ.get("EBBTIDE_WORKER")
    python = REPOSITORY / "python"
    return Path(given) if given else _built(["--example", "worker"], python, "examples/worker")


@pytest.fixture
def rust_worker(worker_program: Path) -> Iterator[Callable[[str], Callable[[str], str]]]:
    """Starts a Rust program on a filter, and returns a function that sends it a line."""
    started: list[subprocess.Popen[str]] = []

    def start(path: str) -> Callable[[str], str]:
        process = subprocess.Popen(
            [worker_program, path], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        started.append(process)
        assert process.stdin is not None and process.stdout is not None
        stdin, stdout = process.stdin, process.stdout
        assert stdout.readline() == "open\n"

        def ask(line: str) -> str:
            stdin.write(line + "\n")
            stdin.flush()
            return stdout.readline().strip()

        return ask

    yield start
    for process in started:
        process.communicate(timeout=60)
        assert process.returncode == 0


@pytest.fixture
def seen(path: str) -> Iterator[ebbtide.Filter]:
    """A filter of the last thousand keys."""
    with ebbtide.open(path, ebbtide.AgePartitioned(1000), hash_seed=7) as filter:
        yield filter
