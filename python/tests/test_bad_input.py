"""Wrong arguments, wrong moments and wrong files: one exception of the right class, no crash."""

from __future__ import annotations

import array
import copy
import errno
import gc
import os
import pickle
import random
import shutil
import uuid
import warnings
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy
import pytest

import ebbtide

BLOOM = "bloom capacity=1000"

#: Each is no key.
NO_KEYS: list[Any] = [
    None,
    7,
    True,
    1.5,
    ("a", "b"),
    ["a"],
    {"a"},
    uuid.UUID(int=1),
    Decimal(1),
    object(),
    numpy.int64(7),
    array.array("Q", [1]),
    str,
]


@pytest.mark.parametrize("key", NO_KEYS, ids=repr)
def test_what_is_no_key_is_a_type_error_that_says_what_to_do(
    seen: ebbtide.Filter, key: Any
) -> None:
    calls: list[Callable[[], object]] = [
        lambda: seen.insert(key),
        lambda: seen.check_and_insert(key),
        lambda: seen.contains(key),
        lambda: key in seen,
        lambda: seen.age(key),
        lambda: seen.seen_within(key, 5),
        lambda: seen.posterior(key, 0.5),
        lambda: seen.insert_all(["a", key]),
        lambda: seen.contains_all([key]),
    ]
    for call in calls:
        with pytest.raises(TypeError, match="a key is str, bytes, bytearray or memoryview, not"):
            call()
    # Bulk calls take the keys of a slice before they insert any.
    assert "a" not in seen


def test_a_filter_made_by_its_class_is_a_type_error_that_names_the_function(tmp_path: Path) -> None:
    for arguments in [(), (tmp_path / "seen",), (tmp_path / "seen", BLOOM)]:
        with pytest.raises(TypeError, match=r"ebbtide\.open\(path, spec\)"):
            ebbtide.Filter(*arguments)
    with pytest.raises(TypeError, match=r"ebbtide\.open\(path, spec\)"):
        ebbtide.Filter(path=tmp_path / "seen")
    assert not (tmp_path / "seen").exists()


def test_text_that_has_no_utf_8_is_a_unicode_error(seen: ebbtide.Filter) -> None:
    with pytest.raises(UnicodeEncodeError):
        seen.insert("\udc80")


@pytest.mark.parametrize("keys", ["abc", b"abc", bytearray(b"abc")], ids=repr)
def test_one_key_where_many_are_expected_is_a_type_error(seen: ebbtide.Filter, keys: Any) -> None:
    with pytest.raises(TypeError, match="found one"):
        seen.insert_all(keys)


@pytest.mark.parametrize("keys", [7, None, object(), 1.5], ids=repr)
def test_what_is_no_iterable_is_a_type_error(seen: ebbtide.Filter, keys: Any) -> None:
    for call in (seen.insert_all, seen.contains_all, seen.check_and_insert_all, seen.estimate_all):
        with pytest.raises(TypeError):
            call(keys)


def test_arrays_of_numbers_are_refused_with_the_ways_out(seen: ebbtide.Filter) -> None:
    for keys in (numpy.arange(5), numpy.array([1.5]), array.array("d", [1.0])):
        with pytest.raises(TypeError, match=r"ebbtide\.raw"):
            seen.insert_all(keys)
    with pytest.raises(TypeError, match="buffer protocol"):
        ebbtide.raw([1, 2])  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="one dimension"):
        ebbtide.raw(numpy.zeros((2, 2)))
    with pytest.raises(ValueError, match="one dimension"):
        ebbtide.raw(numpy.array([object()]))


def test_wrong_times_are_refused(path: str) -> None:
    with ebbtide.open(path, ebbtide.TimeLimited("10m")) as seen:
        with pytest.raises(ValueError, match="without a time zone"):
            seen.insert("a", time=datetime(2026, 1, 1))
        for time in ("now", None, [], timedelta(1), True):
            if time is not None:
                with pytest.raises(TypeError, match="time: expected a datetime"):
                    seen.insert("a", time=time)  # type: ignore[arg-type]
        for number in (-1, float("nan"), float("inf"), 1e300):
            with pytest.raises(ValueError, match="time"):
                seen.insert("a", time=number)
        with pytest.raises(ebbtide.TimeAhead, match="max lead"):
            seen.insert("a", time=4e9)
        assert "a" not in seen


def test_durations_of_numpy_count_in_their_own_unit(path: str) -> None:
    hour = numpy.timedelta64(1, "h")
    for unit in ("m", "s", "ms", "us", "ns", "10s"):
        found = ebbtide.Fingerprint(window=hour.astype(f"m8[{unit}]"))
        assert found.window == timedelta(hours=1), unit
        assert str(found) == "fingerprint window=3600000000us", unit
    for spec, days in ((numpy.timedelta64(2, "W"), 14), (numpy.timedelta64(3, "D"), 3)):
        assert ebbtide.TimeLimited(spec).window == timedelta(days=days)
    assert ebbtide.TimeLimited(numpy.array(1, "m8[s]")).window == timedelta(seconds=1)
    now = 1_700_000_000.0
    second: Any = numpy.timedelta64(1, "s").astype("m8[ns]")
    with ebbtide.open(path, ebbtide.TimeLimited(hour), max_lead=2 * hour) as seen:
        assert seen.parameters["window"] == "3600000000"
        assert seen.stat().max_lead == timedelta(hours=2)
        seen.insert("b", time=now, durability=second)
        seen.insert("c", time=now + 600)
        assert seen.seen_within("c", second, time=now + 600)
        assert not seen.seen_within("b", second, time=now + 600)
        with seen.claim("a", lease=hour.astype("m8[ms]")):
            claim = seen.claims()[0]
            assert claim.age + claim.remaining <= timedelta(hours=1)
            assert claim.remaining > timedelta(minutes=50)


def test_durations_of_numpy_without_a_length_are_refused_with_what_to_give(path: str) -> None:
    wrong: list[tuple[type[Exception], Any]] = [
        (TypeError, numpy.timedelta64(1, "Y")),
        (TypeError, numpy.timedelta64(1, "M")),
        (TypeError, numpy.timedelta64(600)),
        (TypeError, numpy.timedelta64("NaT")),
        (TypeError, numpy.timedelta64("NaT", "s")),
        (TypeError, numpy.datetime64(600_000_000_000, "ns")),
        (TypeError, numpy.datetime64("2026-01-01")),
        (ValueError, numpy.timedelta64(2**62, "W")),
    ]
    with ebbtide.open(path, ebbtide.TimeLimited("10m")) as seen:
        for kind, value in [*wrong, (ValueError, numpy.timedelta64(-1, "s"))]:
            calls: list[Callable[[], object]] = [
                lambda: ebbtide.plan(ebbtide.TimeLimited(value)),
                lambda: seen.seen_within("a", value),
                lambda: seen.claim("a", lease=value),
                lambda: seen.insert("a", durability=value),
            ]
            for number, call in enumerate(calls):
                with pytest.raises(kind) as raised:
                    call()
                    pytest.fail(f"number {number} accepted {value!r}")
                if kind is TypeError:
                    assert "such as numpy.timedelta64(600, 's')" in str(raised.value)
        for time in (numpy.datetime64(1_700_000_000, "ns"), numpy.timedelta64(1_700_000_000, "s")):
            with pytest.raises(TypeError, match="time: expected a datetime"):
                seen.insert("a", time=time)  # type: ignore[arg-type]
        assert seen.stat().inserts == 0 and not seen.claims()


def test_wrong_settings_of_calls_are_refused(path: str) -> None:
    with ebbtide.open(path, ebbtide.Counting(1000)) as counts:
        wrong: list[tuple[type[Exception], Callable[[], object]]] = [
            (ValueError, lambda: counts.insert("a", weight=0)),
            (ValueError, lambda: counts.insert("a", weight=1.5)),
            (ValueError, lambda: counts.insert("a", weight=float("nan"))),
            (TypeError, lambda: counts.insert("a", weight="2")),  # type: ignore[arg-type]
            (ValueError, lambda: counts.insert("a", durability="sometimes")),
            (ValueError, lambda: counts.insert("a", durability=-1)),
            # As for `open`: from a microsecond to a day.
            (ebbtide.BadParameter, lambda: counts.insert("a", durability=0)),
            (ebbtide.BadParameter, lambda: counts.insert_all(["a"], durability="400d")),
            (ebbtide.BadParameter, lambda: counts.claim("a", lease="1s", durability="25h")),
            (ebbtide.BadParameter, lambda: counts.batch(durability=timedelta(days=1, seconds=1))),
            (TypeError, lambda: counts.insert("a", durability=[])),  # type: ignore[arg-type]
            (TypeError, lambda: counts.insert("a", since="x")),  # type: ignore[call-arg]
            (ValueError, lambda: counts.check_and_insert("a", since="x")),  # type: ignore[arg-type]
            (TypeError, lambda: counts.check_and_insert("a", since=1)),  # type: ignore[arg-type]
            (TypeError, lambda: counts.insert()),  # type: ignore[call-arg]
            (TypeError, lambda: counts.insert("a", "b")),  # type: ignore[call-arg]
            (TypeError, lambda: counts.insert("a", colour="red")),  # type: ignore[call-arg]
            (ebbtide.Unsupported, lambda: counts.age("a")),
            (ebbtide.Unsupported, lambda: counts.frequency("a")),
            (ebbtide.Unsupported, lambda: counts.seen_within("a", 5)),
            (ebbtide.Unsupported, lambda: counts.seen_within("a", "10m")),
            (ebbtide.Unsupported, lambda: counts.seen_within("a", None)),  # type: ignore[arg-type]
            (ebbtide.Unsupported, lambda: counts.distinct_within("10m")),
            (ebbtide.Unsupported, lambda: counts.distinct_within(5)),
            (ValueError, lambda: counts.insert_up_to("a", float("nan"))),
            (TypeError, lambda: counts.insert_up_to("a", "5")),  # type: ignore[arg-type]
            (ValueError, lambda: list(counts.only_new(["a"], batch=0))),
            (TypeError, lambda: counts.only_new(["a"], batch="x")),  # type: ignore[call-overload]
            (TypeError, lambda: counts.only_new(5)),  # type: ignore[call-overload]
            (TypeError, lambda: len(counts)),  # type: ignore[arg-type]
            (TypeError, lambda: iter(counts)),  # type: ignore[call-overload]
            (TypeError, lambda: ebbtide.Filter()),
        ]
        for number, (kind, call) in enumerate(wrong):
            with pytest.raises(kind):
                call()
                pytest.fail(f"number {number} was accepted")
        assert counts.stat().inserts == 0


def test_wrong_specs_and_options_are_refused_before_anything_is_created(path: str) -> None:
    wrong: list[tuple[type[Exception], Callable[[], object]]] = [
        (TypeError, lambda: ebbtide.open(path, 5)),  # type: ignore[arg-type]
        (TypeError, lambda: ebbtide.open(path, create=True)),
        (TypeError, lambda: ebbtide.open(path, create=1)),  # type: ignore[arg-type]
        (TypeError, lambda: ebbtide.open(5)),  # type: ignore[arg-type]
        (TypeError, lambda: ebbtide.Fingerprint()),
        (TypeError, lambda: ebbtide.Fingerprint(last=5, window=5)),
        (TypeError, lambda: ebbtide.AgePartitioned("many")),  # type: ignore[arg-type]
        (TypeError, lambda: ebbtide.AgePartitioned(True)),
        (TypeError, lambda: ebbtide.AgePartitioned(None)),  # type: ignore[arg-type]
        (TypeError, lambda: ebbtide.Bloom(1000, fpr="low")),  # type: ignore[arg-type]
        (TypeError, lambda: ebbtide.Spec()),
        (ValueError, lambda: ebbtide.TimeLimited("soon")),
        (ValueError, lambda: ebbtide.TimeLimited(float("nan"))),
        (ValueError, lambda: ebbtide.open(path, ebbtide.TimeLimited(-5))),
        (ValueError, lambda: ebbtide.open(path, ebbtide.Bloom(0))),
        (ValueError, lambda: ebbtide.open(path, ebbtide.Bloom(-5))),
        (ValueError, lambda: ebbtide.open(path, ebbtide.Bloom(1000, fpr=2))),
        (ValueError, lambda: ebbtide.open(path, "no-such-kind last=5")),
        (ValueError, lambda: ebbtide.open(path, "bloom capacity")),
        (ValueError, lambda: ebbtide.open(path, "")),
        (ValueError, lambda: ebbtide.open(path, "bloom capacity=1000", stripes=0)),
        (ValueError, lambda: ebbtide.open(path, "bloom capacity=1000", stripes=-1)),
        (TypeError, lambda: ebbtide.open(path, BLOOM, stripes=1.5)),  # type: ignore[arg-type]
        (ValueError, lambda: ebbtide.open(path, "bloom capacity=1000", durability="x")),
        (ValueError, lambda: ebbtide.open(path, "bloom capacity=1000", durability=0)),
        (ValueError, lambda: ebbtide.open(path, BLOOM, hash="md5")),  # type: ignore[arg-type]
        (TypeError, lambda: ebbtide.open(path, BLOOM, background="on")),  # type: ignore[arg-type]
        (TypeError, lambda: ebbtide.open(path, BLOOM, image=5)),  # type: ignore[arg-type]
        (ValueError, lambda: ebbtide.open(path, BLOOM, image="/tmp/a place")),
        (ebbtide.IoError, lambda: ebbtide.open(path, ebbtide.Bloom(10**6), image="/nowhere/at/all")),
        (ebbtide.NotAFilter, lambda: ebbtide.open(path)),
        (ebbtide.NotAFilter, lambda: ebbtide.open(path, "bloom capacity=1000", create=False)),
        (ebbtide.NotAFilter, lambda: ebbtide.Reader(path)),
        (ebbtide.NotAFilter, lambda: ebbtide.verify(path)),
        (ValueError, lambda: ebbtide.plan("bloom")),
    ]
    for number, (kind, call) in enumerate(wrong):
        with pytest.raises(kind):
            call()
            pytest.fail(f"number {number} was accepted")
    assert not os.path.exists(os.path.join(path, "meta"))


def test_a_filter_of_other_parameters_is_a_mismatch(path: str) -> None:
    ebbtide.open(path, ebbtide.Bloom(1000)).close()
    for spec in (ebbtide.Bloom(2000), ebbtide.Counting(1000)):
        for create in (None, False):
            with pytest.raises(ebbtide.Mismatch) as caught:
                ebbtide.open(path, spec, create=create)
            assert caught.value.what in ("kind", "capacity") and caught.value.path == path
    with pytest.raises(ebbtide.Exists):
        ebbtide.open(path, ebbtide.Bloom(1000), create=True)


def test_a_path_is_taken_as_the_system_takes_it_and_an_empty_one_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "real" / "inner").mkdir(parents=True)
    (tmp_path / "link").symlink_to(tmp_path / "real" / "inner")
    monkeypatch.chdir(tmp_path)
    # The parent of the directory behind the link, and not that of the link.
    for path in ("link/../seen", tmp_path / "link" / ".." / "seen"):
        with ebbtide.open(path, ebbtide.Bloom(1000)) as seen:
            assert os.path.isabs(seen.path)
            assert (tmp_path / "real" / "seen" / "meta").exists()
        assert ebbtide.verify(path).sound
    assert not (tmp_path / "seen").exists()
    monkeypatch.chdir(tmp_path / "real" / "seen")
    for empty in ("", b""):
        with pytest.raises(ValueError, match="empty"):
            ebbtide.open(empty)
        with pytest.raises(ValueError, match="empty"):
            ebbtide.verify(empty)
    with pytest.raises(ValueError, match="empty"):
        ebbtide.Reader("")
    with pytest.raises(ValueError, match="empty"):
        ebbtide.open(".", image="")


def test_an_error_that_the_engine_has_found_out_itself_has_a_number(path: str) -> None:
    # Two terabytes: more than the disk has room for, or the memory.
    with pytest.raises(ebbtide.IoError) as caught:
        ebbtide.open(path, ebbtide.Bloom(10**12))
    assert caught.value.errno in (errno.ENOSPC, errno.ENOMEM) and caught.value.filename


def test_a_closed_filter_raises_closed_which_is_a_value_error(path: str) -> None:
    seen = ebbtide.open(path, ebbtide.Bloom(1000))
    seen.close()
    seen.close()
    assert seen.closed and seen.kind == "bloom" and "closed" in repr(seen)
    calls: list[Callable[[], object]] = [
        lambda: seen.insert("a"),
        lambda: seen.check_and_insert("a"),
        lambda: "a" in seen,
        lambda: seen.insert_all(["a"]),
        lambda: seen.contains_all(["a"]),
        lambda: seen.insert_all([]),
        lambda: seen.check_and_insert_all([]),
        lambda: seen.contains_all([]),
        lambda: seen.estimate_all([]),
        seen.stat,
        seen.digest,
        seen.sync,
        seen.checkpoint,
        seen.clear,
        seen.__enter__,
        lambda: pickle.dumps(seen),
        lambda: list(seen.only_new(["a"])),
        lambda: list(seen.only_new([])),
    ]
    for call in calls:
        with pytest.raises(ebbtide.Closed) as caught:
            call()
        assert isinstance(caught.value, ValueError) and caught.value.name == "closed"

    def interrupted() -> Iterator[str]:
        yield from keys
        raise KeyboardInterrupt

    for keys in ((), ("a",)):
        with pytest.raises(KeyboardInterrupt):
            list(seen.only_new(interrupted()))


def test_iterables_that_close_the_filter_raise_or_use_it_are_survived(path: str) -> None:
    class Stop(Exception):
        pass

    def raising() -> Iterator[str]:
        yield "a"
        raise Stop

    def using(seen: ebbtide.Filter) -> Iterator[str]:
        for number in range(100):
            seen.insert(f"inner {number}")
            yield f"outer {number}"

    def closing(seen: ebbtide.Filter) -> Iterator[str]:
        yield "b"
        seen.close()
        yield "c"

    seen = ebbtide.open(path, ebbtide.Bloom(1000))
    with pytest.raises(Stop):
        seen.insert_all(raising())
    assert seen.insert_all(using(seen)) == 100 and seen.stat().inserts == 200
    for keys in (closing(seen),):
        with pytest.raises(ebbtide.Closed):
            seen.insert_all(keys)


def test_keys_that_change_while_they_are_used_are_taken_as_they_were(seen: ebbtide.Filter) -> None:
    changing = bytearray(b"before")

    def keys() -> Iterator[bytearray]:
        yield changing
        changing[:] = b"after!"
        yield changing

    assert seen.insert_all(keys()) == 2
    assert b"before" in seen and b"after!" in seen
    view = memoryview(bytearray(b"view"))
    seen.insert(view)
    view.release()
    with pytest.raises(ValueError, match="released"):
        seen.insert(view)
    shrinking = [f"key {number}" for number in range(1000)]
    seen.check_and_insert_all(key for key in (shrinking.pop() for _ in range(1000)))
    numbers = numpy.arange(10, dtype="u8")
    keys_of = ebbtide.raw(numbers)
    numbers[:] = 0
    assert list(seen.check_and_insert_all(keys_of)) == [1] * 10


@pytest.mark.parametrize("kind", [bytearray, memoryview])
def test_each_key_that_a_source_reads_into_one_buffer_counts(path: str, kind: Any) -> None:
    records = [b"%08d" % number for number in range(3000)]

    def read() -> Iterator[Any]:
        buffer = bytearray(8)
        view = buffer if kind is bytearray else memoryview(buffer)
        for record in records:
            buffer[:] = record
            yield view

    ways: list[Callable[[ebbtide.Filter], list[Any]]] = [
        lambda seen: [seen.check_and_insert(key) for key in read()],
        lambda seen: list(seen.check_and_insert_all(read())),
        lambda seen: list(seen.new_mask(read())),
        lambda seen: [seen.insert_all(read()) == len(records)] * len(records),
        # Items are yielded as they are: the same object each time.
        lambda seen: [type(item) is kind for item in seen.only_new(read())],
    ]
    for number, way in enumerate(ways):
        with ebbtide.open(f"{path} {number}", ebbtide.Counting(10_000, fpr=1e-9)) as seen:
            assert way(seen) == [1] * len(records), number
            assert list(seen.contains_all(records)) == [1] * len(records), number
            assert list(seen.contains_all(read())) == [1] * len(records), number
            assert all(each.count == 1 for each in seen.estimate_all(read())), number


def test_a_function_may_compute_each_key_in_the_same_buffer(seen: ebbtide.Filter) -> None:
    buffer = bytearray()

    def lower(text: str) -> bytearray:
        buffer[:] = text.lower().encode()
        return buffer

    assert list(seen.only_new(["a", "B", "b", "c"], key=lower)) == ["a", "B", "c"]


def test_filters_cannot_be_copied(seen: ebbtide.Filter) -> None:
    for copied in (copy.copy, copy.deepcopy):
        with pytest.raises(TypeError, match="cannot be copied"):
            copied(seen)


def test_exceptions_pass_between_processes(path: str) -> None:
    errors: list[ebbtide.Error] = []
    for call in (
        lambda: ebbtide.open(path),
        lambda: ebbtide.open("/proc/none/such", "bloom capacity=1000"),
        lambda: ebbtide.open(path, "bloom capacity=0"),
    ):
        try:
            call()
        except ebbtide.Error as error:
            errors.append(error)
    assert [type(error) for error in errors][::2] == [ebbtide.NotAFilter, ebbtide.BadParameter]
    assert isinstance(errors[1], ebbtide.IoError) and isinstance(errors[1], OSError)
    assert errors[1].errno in (errno.ENOENT, errno.EACCES, errno.EPERM)
    for error in errors:
        again = pickle.loads(pickle.dumps(error))
        assert type(again) is type(error) and str(again) == str(error)
        assert (again.code, again.name) == (error.code, error.name) != (0, "")
        assert vars(again) == vars(error)


def test_an_object_that_is_dropped_unclosed_warns_and_closes(path: str) -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        ebbtide.open(path, ebbtide.Bloom(1000)).insert("a")
        gc.collect()
    assert [warning.category for warning in caught] == [ResourceWarning]
    with ebbtide.open(path) as seen:
        assert "a" in seen and seen.stat().handles == 1


def test_damaged_files_are_reported_with_file_offset_and_remedy(tmp_path: Path) -> None:
    whole = tmp_path / "whole"
    with ebbtide.open(whole, ebbtide.Bloom(1000), durability="always") as seen:
        seen.insert_all(f"key {number}" for number in range(100))
    chance = random.Random(7)
    damaged = 0
    for file in sorted(whole.iterdir()):
        for attempt in range(6):
            place = tmp_path / f"{file.name}-{attempt}"
            shutil.copytree(whole, place)
            content = bytearray((place / file.name).read_bytes())
            if not content:
                continue
            if attempt < 4:
                for _ in range(3):
                    content[chance.randrange(min(len(content), 4096))] ^= 1 << chance.randrange(8)
            else:
                del content[chance.randrange(len(content)) :]
            (place / file.name).write_bytes(content)
            report = None
            try:
                report = ebbtide.verify(place)
                with ebbtide.open(place) as seen:
                    # Damage in what is not needed, such as an older snapshot.
                    assert sum(seen.contains_all(f"key {number}" for number in range(100))) <= 100
            except ebbtide.Damaged as error:
                damaged += 1
                assert error.remedy and error.expected and error.found and error.offset >= 0
                assert error.path.startswith(str(place)) and error.remedy in str(error)
            except ebbtide.Error as error:
                assert str(error)
    assert damaged > 0


def test_no_argument_at_all_crashes(seen: ebbtide.Filter) -> None:
    """Every method with every odd object, in every position: an exception, or an answer."""
    odd: list[Any] = [None, 0, -1, 1 << 70, 1.5, float("nan"), "", "x", b"", [], {}, (), object()]
    odd += [numpy.zeros(3), memoryview(b"ab"), seen, ebbtide.Bloom, print, Ellipsis]
    skipped = {"close", "__exit__", "__class__", "__new__", "__init_subclass__", "backup"}
    names = [name for name in dir(ebbtide.Filter) if name not in skipped]
    for name in names:
        method = getattr(seen, name)
        for first in odd:
            for arguments in ((first,), (first, first), ("key", first)):
                try:
                    method(*arguments)
                except Exception:
                    pass
        for keyword in ("time", "durability", "since", "weight", "batch", "key"):
            for value in odd:
                try:
                    method("key", **{keyword: value})
                except Exception:
                    pass
    seen.insert("still there")
    assert "still there" in seen
