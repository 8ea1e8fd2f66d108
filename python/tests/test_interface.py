"""What users read: docstrings, help, examples, names."""

from __future__ import annotations

import doctest
import inspect
import pydoc
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

import ebbtide

MODULES = [
    "",
    "._alter",
    "._history",
    "._open",
    "._specs",
    "._types",
    "._errors",
    "._stream",
    "._claims",
    "._ebbtide",
]

#: The classes that are not written in Python.
CLASSES = (ebbtide.Filter, ebbtide.Reader, ebbtide.Batch, ebbtide.Claim, ebbtide.History)


def test_every_example_of_the_docstrings_runs(monkeypatch: pytest.MonkeyPatch, path: str) -> None:
    attempted = 0
    for name in MODULES:
        module = import_module("ebbtide" + name)
        names = {**vars(ebbtide), "ebbtide": ebbtide}
        results = doctest.testmod(module, extraglobs=names, verbose=False)
        assert results.failed == 0, name
        attempted += results.attempted
    finder = doctest.DocTestFinder(exclude_empty=True)
    runner = doctest.DocTestRunner(verbose=False)
    for owner in (*CLASSES, ebbtide.raw):
        for test in finder.find(owner, owner.__name__, module=False, globs={"ebbtide": ebbtide}):
            results = runner.run(test)
            assert results.failed == 0, test.name
            attempted += results.attempted
    assert attempted >= 25


def test_every_public_name_has_a_docstring() -> None:
    for name in ebbtide.__all__:
        value = getattr(ebbtide, name)
        if name == "__version__" or not (inspect.isclass(value) or inspect.isroutine(value)):
            continue
        assert inspect.getdoc(value), name
        if value in CLASSES:
            for method, function in vars(value).items():
                if not method.startswith("_"):
                    assert inspect.getdoc(function), f"{name}.{method}"
                    if callable(function):
                        assert inspect.signature(function), f"{name}.{method}"


def test_all_is_what_there_is() -> None:
    public = {name for name in vars(ebbtide) if not name.startswith("_")} - {"annotations"}
    assert public == set(ebbtide.__all__) - {"__version__"}
    assert sorted(ebbtide.__all__, key=str) == ebbtide.__all__
    for owner in CLASSES:
        assert owner.__module__ == "ebbtide"


def test_help_shows_signatures_and_settings() -> None:
    text = pydoc.plain(pydoc.render_doc(ebbtide))
    for part in ("check_and_insert(", "time=None", "Filters that forget", "class Fingerprint"):
        assert part in text, part


def test_every_error_is_an_error_of_the_module_and_of_the_expected_class_of_python() -> None:
    for name in ebbtide.__all__:
        value = getattr(ebbtide, name)
        if inspect.isclass(value) and issubclass(value, BaseException):
            assert issubclass(value, ebbtide.Error)
    assert issubclass(ebbtide.IoError, OSError) and issubclass(ebbtide.FullDisk, ebbtide.IoError)
    for kind in (ebbtide.BadParameter, ebbtide.TimeAhead, ebbtide.Closed):
        assert issubclass(kind, ValueError)
    assert issubclass(ebbtide.Unsupported, TypeError)


def test_a_filter_shows_its_path_kind_and_parameters(seen: ebbtide.Filter) -> None:
    shown = repr(seen)
    assert seen.path in shown and "age-partitioned" in shown and "window-items=1000" in shown
    assert repr(ebbtide.raw(b"abc")) == "<ebbtide.Raw of 3 keys of 1 bytes>"
    assert repr(ebbtide.Fingerprint(last=5, fpr=0.1)) == "Fingerprint(last=5, fpr=0.1)"
    assert ebbtide.TimeLimited("1h30m") == ebbtide.TimeLimited(5400.0)
    assert hash(ebbtide.Bloom(5)) == hash(ebbtide.Bloom(5))


# Where the types say more than Python can of the object: `Decaying` has no default for what an
# exponential decay needs, because another decay does without it.
NARROWER = "ebbtide._specs.Decaying.__init__\n"


def test_the_types_hold_what_the_module_is(tmp_path: Path) -> None:
    pytest.importorskip("mypy.stubtest")
    if sys.version_info < (3, 10):
        pytest.skip("there stubtest finds differences in the names of Python's own library")
    narrower = tmp_path / "narrower"
    narrower.write_text(NARROWER)
    # `__init_subclass__` and such: what every class of an extension has.
    stubtest = [sys.executable, "-m", "mypy.stubtest", "ebbtide", "--ignore-disjoint-bases"]
    checked = subprocess.run(
        [*stubtest, "--allowlist", str(narrower)], capture_output=True, text=True
    )
    assert checked.returncode == 0, checked.stdout + checked.stderr


@pytest.mark.parametrize(
    "call",
    [
        "Fingerprint()",
        "Fingerprint(fpr=0.1)",
        "Fingerprint(last=1000, window='10m')",
        "Fingerprint(last=1000, rate=5.0)",
        "Fingerprint(window='10m', words=64)",
        "Bloom()",
        "TimeLimited()",
    ],
)
def test_what_cannot_be_a_filter_is_an_error_of_types_and_of_the_call(
    call: str, tmp_path: Path
) -> None:
    api = pytest.importorskip("mypy.api")
    program = tmp_path / "program.py"
    program.write_text(f"import ebbtide\nebbtide.plan(ebbtide.{call})\n")
    # In one process with one cache: each takes a second only.
    printed, errors, code = api.run(["--strict", f"--cache-dir={tmp_path.parent}", str(program)])
    assert code == 1 and "Found 1 error in 1 file" in printed, printed + errors
    with pytest.raises((TypeError, ebbtide.BadParameter)):
        eval(f"ebbtide.plan(ebbtide.{call})", {"ebbtide": ebbtide})


def test_a_program_that_uses_every_name_passes_strict_type_checks(tmp_path: Path) -> None:
    pytest.importorskip("mypy")
    program = Path(__file__).with_name("every_name.py")
    text = program.read_text()
    for name in ebbtide.__all__:
        assert f"ebbtide.{name}" in text, f"{program.name} does not use {name}"
    classes = (
        (ebbtide.Filter, "seen"),
        (ebbtide.Reader, "reader"),
        (ebbtide.Batch, "batch"),
        (ebbtide.Claim, "claim"),
        (ebbtide.History, "log"),
    )
    for owner, variable in classes:
        for method in vars(owner):
            if not method.startswith("_"):
                assert f"{variable}.{method}" in text, f"{program.name}: {variable}.{method}"
    checked = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", f"--cache-dir={tmp_path}", str(program)],
        capture_output=True,
        text=True,
        cwd=tmp_path,
    )
    assert checked.returncode == 0, checked.stdout + checked.stderr
    subprocess.run([sys.executable, "-W", "error", str(program), str(tmp_path / "use")], check=True)


def test_the_image_lies_where_the_first_to_open_the_filter_says(path: str, tmp_path: Path) -> None:
    spec = ebbtide.Fingerprint(last=100_000)
    there = tmp_path / "there"
    there.mkdir()
    places = {"memory": "memory", "beside-log": "beside the log", there: "a directory on a disk"}
    for number, (image, found) in enumerate(places.items()):
        with ebbtide.open(f"{path}-{number}", spec, image=image) as seen:
            seen.insert("a key")
            place = seen.stat().image
            assert place == found or (image == there and place == "a directory in memory")
            # Others follow it, whatever they ask for.
            with ebbtide.open(f"{path}-{number}", image="memory") as second:
                assert second.stat().image == place and "a key" in second
    assert not list(there.iterdir()), "the file has no name"
    beside, memory = (ebbtide.plan(spec, image=image) for image in ("beside-log", "memory"))
    assert beside.disk_bytes - memory.disk_bytes == memory.memory_bytes
    assert 32 < memory.written_bytes <= 64


def test_a_window_of_time_keeps_its_limit_of_memory_and_every_key(tmp_path: Path) -> None:
    specs: list[tuple[ebbtide.Spec, int]] = [
        (ebbtide.Fingerprint(window="10m", max_memory="256KiB"), 256 << 10),
        (ebbtide.TimeLimited("10m", max_memory=400 << 10), 400 << 10),
    ]
    keys = [f"key {number}" for number in range(200_000)]
    for spec, most in specs:
        with ebbtide.open(tmp_path / spec.kind, spec) as seen:
            for begin in range(0, len(keys), 10_000):
                seen.insert_all(keys[begin : begin + 10_000])
                assert seen.stat().memory_bytes <= most
            assert all(seen.contains_all(keys))
            assert seen.stat().saturated
            assert seen.stat().parameters["max-memory"] == str(most)
    with pytest.raises(ebbtide.BadParameter, match="at least"):
        ebbtide.plan(ebbtide.Fingerprint(window="10m", max_memory="4KiB"))
    with pytest.raises(ebbtide.BadParameter, match="max-memory|max_memory"):
        ebbtide.plan(ebbtide.Fingerprint(window="10m", max_memory="lots"))
    for wrong in [1.5, True]:
        with pytest.raises(TypeError, match="max_memory"):
            ebbtide.Fingerprint(window="10m", max_memory=wrong)  # type: ignore[arg-type]
