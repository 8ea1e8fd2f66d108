"""The engine's answers, whatever the form of the keys and the calls."""

from __future__ import annotations

import asyncio
import dataclasses
import re
import signal
import subprocess
import tempfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import ebbtide
from ebbtide._specs import PARAMETERS, Spec
from ebbtide._stream import only_new

from .conftest import EFFORT, REPOSITORY

GOLDEN = REPOSITORY / "tests/answers/golden.txt"

#: Of the samples of the engine's tests: the largest weight, and whether a fourth are removals.
WEIGHTS: dict[str, tuple[int, bool]] = {
    "counting": (3, True),
    "spectral": (9, True),
    "spectral, minimal increase": (9, False),
    "spectral, recurring minimum": (9, False),
    "dynamic-count": (200, True),
    "decaying": (9, False),
    "decaying-optimized": (40, False),
    "decaying, polynomial": (9, False),
    "decaying, weights": (9, False),
    "decaying-optimized, sized": (40, False),
    "importance-2c": (7, False),
    "importance-mc": (7, False),
    "importance-h": (7, False),
}


def golden() -> Iterator[Any]:
    """The recorded digests of the engine's tests."""
    if not GOLDEN.exists():
        return
    for section in GOLDEN.read_text().split("\n\n")[1:]:
        name, *lines = section.strip().split("\n")
        values = dict(line.strip().split(": ", 1) for line in lines)
        yield pytest.param(name, values["parameters"], values["digest"], id=name.replace(", ", "-"))


def spec_of(name: str, parameters: str) -> str:
    words = parameters.split()
    # Recorded in microseconds, written with a unit.
    timed = [f"{word}us" if word.startswith(("window=", "epoch=")) else word for word in words]
    return " ".join([name.split(",")[0], *timed])


@pytest.mark.parametrize(("name", "parameters", "digest"), list(golden()))
def test_the_recorded_streams_of_the_engine_give_the_recorded_digests(
    path: str, name: str, parameters: str, digest: str
) -> None:
    heaviest, removes = WEIGHTS.get(name, (1, False))
    options: dict[str, Any] = {
        "hash": "keyed" if name.endswith("keyed") else "fast",
        "hash_seed": 20_261_122,
        "stripes": 4,
        "block_bytes": 4096,
        "segment_bytes": 16 << 10,
        "durability": "never",
        "background": False,
    }

    def key(number: int) -> str:
        return f"key {number // 2 if number % 4 == 1 else number}"

    def settings_of(number: int, time: float) -> dict[str, Any]:
        weight = {"weight": 1 + number * 7 % heaviest} if heaviest > 1 else {}
        return {"time": time, **weight}

    with ebbtide.open(path, spec_of(name, parameters), create=True, **options) as filter:
        for number in range(3000):
            time = 1_700_000_000 + number / 1000
            if removes and number % 4 == 3:
                assert filter.remove(key(number - 1), **settings_of(number - 1, time))
            elif number % 2 == 0:
                filter.insert(key(number), **settings_of(number, time))
            else:
                filter.check_and_insert(key(number), **settings_of(number, time))
        assert filter.digest().value == digest


texts = st.text(st.characters(codec="utf-8"), max_size=8)
keys = st.one_of(texts, st.binary(max_size=8), st.sampled_from(["a", b"a", "ä"]))


def as_bytes(key: str | bytes) -> bytes:
    return key.encode() if isinstance(key, str) else key


@settings(
    max_examples=int(30 * EFFORT),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
@given(st.lists(keys, max_size=60))
def test_forms_of_keys_and_calls_give_the_same_answers_and_digests(
    stream: list[str | bytes],
) -> None:
    spec = ebbtide.AgePartitioned(1000, fpr=1e-9)
    with (
        tempfile.TemporaryDirectory() as home,
        ebbtide.open(f"{home}/single", spec, hash_seed=7, background=False) as single,
        ebbtide.open(f"{home}/bulk", spec, hash_seed=7, background=False) as bulk,
        ebbtide.open(f"{home}/buffers", spec, hash_seed=7, background=False) as buffers,
    ):
        model: set[bytes] = set()
        expected = []
        for key in stream:
            expected.append(as_bytes(key) not in model)
            model.add(as_bytes(key))
        assert [single.check_and_insert(key) for key in stream] == expected
        assert list(bulk.check_and_insert_all(iter(stream))) == expected
        forms = (bytearray, memoryview, bytes)
        mixed = [forms[at % 3](as_bytes(key)) for at, key in enumerate(stream)]
        assert [buffers.check_and_insert(key) for key in mixed] == expected
        assert single.digest() == bulk.digest() == buffers.digest()
        assert all(key in single for key in stream)
        assert list(bulk.contains_all(tuple(stream))) == [1] * len(stream)


def test_arrays_of_byte_strings_are_keys_without_the_zeros_at_their_ends(
    seen: ebbtide.Filter,
) -> None:
    array = numpy.array([b"a", b"bcd", b"a", b""], dtype="S8")
    assert list(seen.check_and_insert_all(array)) == [1, 1, 0, 1]
    assert "a" in seen and "bcd" in seen and b"" in seen
    assert list(seen.contains_all(array[::2])) == [1, 1]


def test_raw_items_are_their_bytes_in_memory(seen: ebbtide.Filter) -> None:
    ids = numpy.arange(100, dtype="<u8")
    assert len(ebbtide.raw(ids)) == 100
    assert set(seen.check_and_insert_all(ebbtide.raw(ids))) == {1}
    assert (7).to_bytes(8, "little") in seen
    assert set(seen.contains_all(ebbtide.raw(ids[::-3]))) == {1}
    answers = numpy.frombuffer(seen.contains_all(ebbtide.raw(ids + 1000)), "u1")
    assert answers.dtype == numpy.uint8 and answers.sum() < 3


def test_raw_items_may_have_fields_of_any_name_but_no_objects(seen: ebbtide.Filter) -> None:
    places = numpy.zeros(2, dtype=[("Offset", "<i4"), ("O", [("File O", "S3"), ("x", "<f8", 2)])])
    places["Offset"] = [7, 8]
    assert list(seen.check_and_insert_all(ebbtide.raw(places))) == [1, 1]
    assert places[1].tobytes() in seen
    for fields in ([("a", "<i4"), ("b", "O")], [("a", [("b", "O")])], [("b", "O", 2)]):
        with pytest.raises(ValueError, match="one dimension"):
            ebbtide.raw(numpy.zeros(2, dtype=fields))


def test_arrays_of_objects_are_iterated(seen: ebbtide.Filter) -> None:
    array = numpy.array(["a", b"b", "a"], dtype=object)
    assert list(seen.check_and_insert_all(array)) == [1, 1, 0]


def test_only_new_yields_each_item_once_in_order_whatever_the_batch(tmp_path: Path) -> None:
    items = [(f"key {number % 70}", number) for number in range(500)]
    for batch in (1, 7, 1024):
        with ebbtide.open(tmp_path / str(batch), ebbtide.Bloom(1000, fpr=1e-9)) as seen:
            new = list(seen.only_new(items, key=lambda item: item[0], batch=batch))
            assert new == items[:70]
            assert list(seen.only_new(["key 1", "other"], since="last-accepted")) == ["other"]


def test_only_new_yields_what_was_taken_before_an_error(tmp_path: Path) -> None:
    def broken() -> Iterator[str]:
        yield from ("a", "a", "b")
        raise OSError("the source is gone")

    def interrupted() -> Iterator[str]:
        yield "a"
        raise KeyboardInterrupt

    def first(item: str) -> str:
        if item == "c":
            raise LookupError(item)
        return item

    sources: list[tuple[type[BaseException], Callable[[], Iterable[Any]], Any, list[str]]] = [
        (OSError, broken, None, ["a", "b"]),
        (OSError, broken, str.upper, ["a", "b"]),
        (KeyboardInterrupt, interrupted, None, ["a"]),
        (LookupError, lambda: iter("abcd"), first, ["a", "b"]),
        (TypeError, lambda: ["a", "b", 7, "d"], None, ["a", "b"]),
        (UnicodeEncodeError, lambda: ["a", "\ud800", "d"], None, ["a"]),
    ]
    for number, (kind, source, key, expected) in enumerate(sources):
        for batch in (1, 2, 3, 4, 1024):
            path = tmp_path / f"{number}-{batch}"
            with ebbtide.open(path, ebbtide.Bloom(1000, fpr=1e-9)) as seen:
                found: list[str] = []
                with pytest.raises(kind):
                    for item in seen.only_new(source(), key=key, batch=batch):
                        found.append(item)
                assert found == expected, (number, batch)
                assert "d" not in seen and "c" not in seen


def test_an_exception_has_the_answers_for_the_keys_that_were_inserted_before_it(
    tmp_path: Path,
) -> None:
    def interrupted() -> Iterator[str]:
        yield from (str(number % 65_000) for number in range(140_000))
        raise KeyboardInterrupt

    with ebbtide.open(tmp_path / "f", ebbtide.Bloom(70_000, fpr=1e-9)) as seen:
        with pytest.raises(KeyboardInterrupt) as raised:
            seen.check_and_insert_all(interrupted())
        answers: bytes = raised.value.answers  # type: ignore[attr-defined]
        # Two slices: what the third had taken is not inserted.
        assert answers == b"\1" * 65_000 + b"\0" * (2 * 65_536 - 65_000)
        with pytest.raises(TypeError) as wrong:
            seen.check_and_insert_all(["new", 7])
        assert wrong.value.answers == b"" and "new" not in seen  # type: ignore[attr-defined]


def test_a_signal_in_a_bulk_call_hides_no_answer(tmp_path: Path) -> None:
    def stop(_signal: int, _frame: object) -> None:
        raise InterruptedError

    keys = [str(number) for number in range(1_000_000)]
    former = signal.signal(signal.SIGALRM, stop)
    try:
        with ebbtide.open(tmp_path / "f", ebbtide.Bloom(1_000_000)) as seen:
            try:
                signal.setitimer(signal.ITIMER_REAL, 0.01)
                answers = seen.check_and_insert_all(keys)
            except InterruptedError as error:
                # Without answers if it came before the call, or after it.
                answers = getattr(error, "answers", b"")
            signal.setitimer(signal.ITIMER_REAL, 0)
            assert seen.stat().inserts == answers.count(1)
            assert list(seen.contains_all(keys[: len(answers)])).count(1) == len(answers)
    finally:
        signal.signal(signal.SIGALRM, former)


def test_only_new_yields_the_items_whose_answers_come_with_an_exception(tmp_path: Path) -> None:
    class Full:
        """A filter whose disk is full after two keys, and then has room."""

        def __init__(self, filter: ebbtide.Filter) -> None:
            self.filter = filter

        def check_and_insert_all(self, keys: list[str]) -> bytes:
            error = ebbtide.FullDisk("no room")
            error.answers = self.filter.check_and_insert_all(keys[:2])
            raise error

    with ebbtide.open(tmp_path / "f", ebbtide.Bloom(1000, fpr=1e-9)) as seen:
        found = []
        with pytest.raises(ebbtide.FullDisk):
            for item in only_new(Full(seen), ["a", "b", "c"], None, 3, {}):  # type: ignore[arg-type]
                found.append(item)
        assert found == ["a", "b"] and list(seen.only_new(["a", "b", "c"])) == ["c"]


def test_only_new_yields_all_that_it_remembers_of_a_large_batch_with_an_item_that_is_no_key(
    tmp_path: Path,
) -> None:
    items: list[Any] = [f"{number}" for number in range(70_000)]
    items[66_000] = 7
    with ebbtide.open(tmp_path / "f", ebbtide.Bloom(70_000, fpr=1e-9)) as seen:
        found: list[Any] = []
        with pytest.raises(TypeError, match="a key is str"):
            for item in seen.only_new(items, batch=70_000):
                found.append(item)
        assert found == items[:66_000]
        assert seen.stat().inserts == 66_000 and "66001" not in seen


def test_only_new_does_not_suppress_an_item_that_is_too_late_to_know(tmp_path: Path) -> None:
    start = 1_700_000_000.0
    for batch in (1, 2, 1024):
        with ebbtide.open(tmp_path / str(batch), ebbtide.TimeLimited("10m")) as seen:
            assert list(seen.only_new(["a", "b"], batch=batch, time=start)) == ["a", "b"]
            items = ["late", "late", "a"]
            early = start - 3600
            # A key that is present is suppressed whatever its time; one that is late is not, and
            # is not remembered.
            assert list(seen.only_new(items, batch=batch, time=early)) == ["late", "late"]
            assert list(seen.check_and_insert_all(items, time=early)) == [2, 2, 0]
            assert list(seen.only_new(items, batch=batch, time=start)) == ["late"]


def test_a_late_key_that_is_in_the_window_is_present_and_is_not_counted_as_inserted(
    tmp_path: Path,
) -> None:
    start = 1_700_000_000.0
    late = start - 3600
    with ebbtide.open(tmp_path / "seen", ebbtide.TimeLimited("10m")) as seen:
        seen.insert("a", time=start)
        assert seen.insert_all(["a", "b"], time=late) == 0
        assert seen.insert_all(["c", "a"], time=start) == 2
        assert seen.stat().inserts == 3
        assert not seen.check_and_insert("a", time=late)
        assert list(seen.check_and_insert_all(["a", "b"], time=late)) == [0, 2]
        for late_key, call in (("a", seen.insert), ("b", seen.check_and_insert)):
            with pytest.raises(ebbtide.TooLate):
                call(late_key, time=late)
        assert seen.stat().inserts == 3


def test_the_command_prints_the_lines_that_only_new_yields(tmp_path: Path, command: Path) -> None:
    start = 1_700_000_000
    rows = [(start, "a"), (start + 1, "b"), (start - 7200, "late"), (start - 7200, "late")]
    rows += [(start - 7200, "a"), (start + 2, "c"), (start + 2, "b")]
    text = "".join(f"{time}\t{key}\n" for time, key in rows)
    arguments = ["dedup", "--window", "10m", "--event-time", "--time-unit", "s"]
    printed = subprocess.run(
        [command, *arguments], input=text, capture_output=True, text=True, check=True
    )
    with ebbtide.open(tmp_path / "seen", ebbtide.Fingerprint(window="10m")) as seen:
        yielded = [row for row in rows for _ in seen.only_new([row[1]], time=row[0])]
    assert printed.stdout.splitlines() == [f"{time}\t{key}" for time, key in yielded]
    assert [key for _, key in yielded] == ["a", "b", "late", "late", "c"]


def test_add_is_insert_as_of_a_set(seen: ebbtide.Filter) -> None:
    seen.add("a")
    assert "a" in seen and ebbtide.Filter.add is ebbtide.Filter.insert
    assert not seen.check_and_insert("a")


def test_async_with_closes_also_after_an_exception(tmp_path: Path) -> None:
    async def run() -> None:
        async with ebbtide.open(tmp_path / "seen", ebbtide.Bloom(1000)) as seen:
            seen.add("a")
            async with ebbtide.Reader(tmp_path / "seen") as reader:
                assert "a" in reader
            assert reader.closed and not seen.closed
        assert seen.closed
        with pytest.raises(ebbtide.Closed):
            async with seen:
                raise AssertionError("a closed filter is not entered")
        with pytest.raises(ZeroDivisionError):
            async with ebbtide.open(tmp_path / "seen") as again:
                assert "a" in again
                raise ZeroDivisionError
        assert again.closed

    asyncio.run(run())


def test_a_thousand_times_a_slice_of_keys_is_worked_on_piece_by_piece(path: str) -> None:
    with ebbtide.open(path, ebbtide.Bloom(400_000, fpr=1e-9)) as seen:
        count = 200_000
        assert seen.insert_all(str(number) for number in range(count)) == count
        assert sum(seen.contains_all(map(str, range(count)))) == count
        assert seen.stat().inserts == count


def test_times_counts_and_ages_come_back_in_the_types_of_python(tmp_path: Path) -> None:
    from datetime import datetime, timedelta, timezone

    start = datetime(2026, 1, 1, tzinfo=timezone.utc)
    window = timedelta(minutes=10)
    with ebbtide.open(tmp_path / "timed", ebbtide.TimeLimited(window)) as seen:
        assert seen.check_and_insert("a", time=start)
        assert not seen.check_and_insert("a", time=start + timedelta(minutes=9))
        assert seen.check_and_insert("b", time=(start + timedelta(minutes=9)).timestamp())
        later = start + timedelta(minutes=15)
        age = seen.age("a", time=later)
        assert isinstance(age, timedelta) and timedelta(minutes=5) < age <= timedelta(minutes=6)
        assert seen.seen_within("a", "8m", time=later)
        assert round(seen.distinct(time=later).keys) == 2
        lately = seen.distinct_within("1m", time=later + timedelta(minutes=3))
        assert lately.keys == 0 and lately.reach == timedelta(minutes=1)
        assert not seen.seen_within("a", 60.0, time=later)
        with pytest.raises(ebbtide.TooLate):
            seen.check_and_insert("late", time=start - timedelta(hours=1))
        assert list(seen.check_and_insert_all(["late"], time=start - timedelta(hours=1))) == [2]
        assert seen.insert_all(["late"], time=start - timedelta(hours=1)) == 0
        assert seen.stat().time == start + timedelta(minutes=9)
    with ebbtide.open(tmp_path / "items", ebbtide.Timing(1000)) as seen:
        seen.insert_all(["a", "b", "c"])
        assert seen.age("a") == 2 and seen.age("d") is None
        assert seen.seen_within("a", 3) and not seen.seen_within("a", 2)
        whole, lately = seen.distinct(), seen.distinct_within(2)
        assert round(whole.keys) == 3 and whole.reach == 3 and 0 < whole.standard_error < 1
        assert round(lately.keys) == 2 and lately.reach == 2
        assert round(seen.stat().distinct_keys) == 3 and seen.stat().distinct_keys_error < 1
        with pytest.raises(TypeError):
            seen.distinct_within("1m")
        assert seen.posterior("a", 1e-6) > 0.99 and seen.posterior("d", 1e-6) == 0
        assert seen.decide("a", 1e-6, false_positive=10, false_negative=1)
    with ebbtide.open(tmp_path / "counts", ebbtide.DynamicCount(1000)) as counts:
        assert counts.insert_and_estimate("a", weight=5) == ebbtide.Estimate(5.0, False)
        assert counts.insert_up_to("a", 5) == ebbtide.Admission(False, ebbtide.Estimate(5.0, False))
        assert counts.remove("a", weight=2) and counts.estimate("a").count == 3
        assert [estimate.count for estimate in counts.estimate_all(["a", "b"])] == [3, 0]
    with ebbtide.open(tmp_path / "decaying", ebbtide.Decaying(1000, 0.5, "1m")) as counts:
        counts.insert("a", time=60.0, weight=8)
        assert counts.estimate("a", time=180.0).count == 2
        assert counts.frequency("a", time=180.0).count == 1
        with pytest.raises(ebbtide.Unsupported):
            counts.distinct()
        assert counts.stat().distinct_keys is None


def test_a_backup_is_a_filter_of_its_own(path: str, tmp_path: Path) -> None:
    with ebbtide.open(path, ebbtide.Bloom(1000)) as seen:
        seen.insert("a")
        seen.backup(tmp_path / "backup")
        seen.insert("b")
        assert seen.checkpoint() > 0
        seen.clear()
        assert "b" not in seen
    ebbtide.restore(tmp_path / "backup", tmp_path / "restored")
    for copy in ("backup", "restored"):
        with ebbtide.open(tmp_path / copy) as seen:
            assert "a" in seen and "b" not in seen
    assert ebbtide.verify(path) and ebbtide.salvage(path, tmp_path / "salvaged") is None


def test_every_kind_opens_with_its_class_and_again_with_its_text(tmp_path: Path) -> None:
    specs: list[ebbtide.Spec] = [
        ebbtide.Fingerprint(last=1000, fpr=0.01),
        ebbtide.Fingerprint(window=60),
        ebbtide.AgePartitioned(1000),
        ebbtide.TimeLimited("10m", rate=100),
        ebbtide.Timing(1000),
        ebbtide.BlockTiming(1000, batch=10),
        ebbtide.DoubleBuffering(1000),
        ebbtide.TwoBuffer(1000),
        ebbtide.Bloom(1000),
        ebbtide.Counting(1000, counter_bits=8),
        ebbtide.Spectral(1000, policy="mi"),
        ebbtide.DynamicCount(1000, mean_count=3),
        ebbtide.Decaying(1000, 0.5, 60),
        ebbtide.Decaying(1000, epoch=60, decay="linear", window_epochs=8),
        ebbtide.DecayingOptimized(1000, 0.5, 60, front="plain"),
        ebbtide.Stable(100_000, 7, 5, 100),
        ebbtide.Importance2c(100_000, 7, 5, 20, importance_max=100),
        ebbtide.ImportanceMc(100_000, 7, 5, 20),
        ebbtide.ImportanceH(100_000, 7, 5, 20),
    ]
    for number, spec in enumerate(specs):
        place = tmp_path / str(number)
        with ebbtide.open(place, spec) as filter:
            filter.insert("a")
            assert filter.kind == spec.kind
        with ebbtide.open(place, str(spec), create=False) as filter:
            assert "a" in filter
        assert ebbtide.plan(spec).kind == spec.kind


def test_every_parameter_of_the_engine_is_one_of_a_class_and_reaches_the_engine() -> None:
    source = (REPOSITORY / "core/src/kinds/altered_parameters.rs").read_text()
    order = source.partition("ORDER: &[&str] = &[")[2].partition("];")[0]
    names = {name for name, _ in PARAMETERS.values()}
    assert names == set(re.findall('"([^"]+)"', order))
    classes = [value for value in vars(ebbtide).values() if isinstance(value, type)]
    kinds = [kind for kind in classes if issubclass(kind, Spec) and kind.kind]
    assert len(kinds) == 17
    taken = {part.name for kind in kinds for part in dataclasses.fields(kind)}
    assert taken == set(PARAMETERS)


@pytest.mark.parametrize(
    ("spec", "text"),
    [
        (ebbtide.Fingerprint(last=1000, max_load=0.8), "window-items=1000 max-load=0.8"),
        (
            ebbtide.Fingerprint(
                last=1000, slots=4, bits=13, generations=14, bytes=9, moves=4, max_load=0.9
            ),
            "window-items=1000 max-load=0.9 slots=4 bits=13 generations=14 bytes=9 moves=4",
        ),
        (ebbtide.Fingerprint(window=60, growth="rate"), "window=60000000us growth=rate"),
        (ebbtide.TimeLimited(60, aim="steady"), "window=60000000us aim=steady"),
        (
            ebbtide.Decaying(1000, epoch=60, decay="polynomial", exponent=1.5, horizon=100),
            "capacity=1000 epoch=60000000us decay=polynomial exponent=1.5 horizon=100",
        ),
        (
            ebbtide.Decaying(1000, epoch=60, decay="weights", weights="1,0.5,0.25"),
            "capacity=1000 epoch=60000000us decay=weights weights=1,0.5,0.25",
        ),
        (
            ebbtide.DecayingOptimized(1000, 0.5, 60, error=0.01),
            "capacity=1000 lambda=0.5 epoch=60000000us error=0.01",
        ),
    ],
    ids=str,
)
def test_parameters_are_those_of_the_text_form(
    tmp_path: Path, spec: ebbtide.Spec, text: str
) -> None:
    assert str(spec) == f"{spec.kind} {text}"
    assert ebbtide.plan(spec) == ebbtide.plan(f"{spec.kind} {text}")
