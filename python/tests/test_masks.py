"""Answers as arrays of bool, for numpy and pandas."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterable
from typing import Any

import numpy
import pytest

import ebbtide

TEXTS = ["a", "b", "ä", "", "a", "b\u20ac"]


@pytest.mark.parametrize(
    "keys",
    [
        TEXTS,
        iter(TEXTS),
        numpy.array(TEXTS),
        numpy.array(TEXTS).astype(">U3"),
        numpy.array(TEXTS, dtype=object),
        numpy.array([text.encode() for text in TEXTS]),
        numpy.array(TEXTS, dtype=getattr(numpy.dtypes, "StringDType", object)()),
    ],
    ids=["list", "iterator", "text", "text of other order", "objects", "bytes", "strings"],
)
def test_every_form_of_the_same_texts_gives_the_same_keys_and_masks(
    seen: ebbtide.Filter, keys: Iterable[Any]
) -> None:
    seen.add("b")
    mask = seen.new_mask(keys)
    assert mask.dtype == numpy.bool_ and mask.shape == (len(TEXTS),)
    assert mask.tolist() == [True, False, True, True, False, True]
    assert seen.contains_mask(TEXTS).all() and seen.contains("".encode())
    assert seen.contains_all(TEXTS) == bytes([1] * len(TEXTS))


def test_a_mask_selects_what_only_new_yields(path: str) -> None:
    minute = ebbtide.TimeLimited("1m")
    random = numpy.random.default_rng(7)
    ids = random.integers(0, 300, 1000).astype("S8")
    late = 1_700_000_000.0 - 100_000
    for number, given in enumerate(({}, {"time": late}, {"since": "last-accepted"})):
        settings: dict[str, Any] = given
        with ebbtide.open(f"{path}{number}", minute) as one:
            with ebbtide.open(f"{path}{number}-twin", minute) as other:
                for filter in (one, other):
                    filter.insert("x", time=1_700_000_000.0)
                selected = ids[one.new_mask(ids, **settings)].tolist()
                assert selected == list(other.only_new(ids.tolist(), **settings))
                assert len(selected) > 250


def test_masks_are_writable_and_those_of_nothing_are_empty(seen: ebbtide.Filter) -> None:
    assert seen.new_mask([]).tolist() == [] and seen.contains_mask(numpy.array([], "S4")).size == 0
    mask = seen.contains_mask(["a", "b"])
    mask[0] = True
    assert mask.tolist() == [True, False]
    numbers = numpy.arange(5, dtype="<i8")
    assert seen.new_mask(ebbtide.raw(numbers)).all()
    with pytest.raises(TypeError, match=r"ebbtide\.raw"):
        seen.new_mask(numbers)


def test_a_reader_has_masks_of_what_it_sees(path: str) -> None:
    with ebbtide.open(path, ebbtide.Bloom(1000)) as seen:
        seen.add("a")
        with ebbtide.Reader(path) as reader:
            assert reader.contains_mask(numpy.array(["a", "b"])).tolist() == [True, False]
            assert not hasattr(reader, "new_mask")


def test_columns_of_pandas_are_keys_and_take_masks(seen: ebbtide.Filter) -> None:
    pandas = pytest.importorskip("pandas")
    table = pandas.DataFrame({"id": ["a", "b", "a", "c"], "n": [1, 2, 3, 4]}, index=[9, 8, 7, 6])
    assert table[seen.new_mask(table["id"])]["n"].tolist() == [1, 2, 4]
    assert table.loc[~seen.contains_mask(table["id"].astype("category"))].empty
    gaps = pandas.Series(["d", None])
    with pytest.raises(TypeError, match="a key is str"):
        seen.new_mask(gaps)
    assert seen.new_mask(gaps.dropna()).tolist() == [True]


def test_masked_items_are_no_keys(seen: ebbtide.Filter) -> None:
    for kind in ("S", "U"):
        masked: Any = numpy.ma.array(numpy.array(["a", "b"], kind), mask=[False, True])
        for insert in (seen.new_mask, seen.insert_all, ebbtide.raw):
            with pytest.raises(TypeError, match="compressed"):
                insert(masked)
        assert "a" not in seen and "b" not in seen
        seen.insert_all(masked.compressed())
        assert "a" in seen and "b" not in seen
        seen.clear()


def test_the_package_does_without_numpy(tmp_path: Any) -> None:
    program = (
        "import sys\n"
        "sys.modules['numpy'] = None\n"
        "import ebbtide\n"
        "with ebbtide.open(sys.argv[1], ebbtide.Fingerprint(last=9)) as seen:\n"
        "    assert seen.check_and_insert_all(['a', 'a']) == bytes([1, 0])\n"
        "    for mask in (seen.contains_mask, seen.new_mask):\n"
        "        try:\n"
        "            mask(['b'])\n"
        "        except ImportError as error:\n"
        "            print(type(error).__name__)\n"
        "    assert not seen.contains('b'), 'a mask that failed has inserted nothing'\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path / "f")], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == 2 * "ModuleNotFoundError\n"


def test_an_array_without_items_is_no_keys_whatever_its_type(seen: ebbtide.Filter) -> None:
    for dtype in ("float64", "int64", "U3", "S0", "object", "datetime64[s]"):
        keys = numpy.array([], dtype=dtype)
        assert seen.new_mask(keys).tolist() == [] == seen.contains_mask(keys).tolist(), dtype
        assert seen.insert_all(keys) == 0
    assert seen.insert_all(memoryview(b"")) == 0
    with pytest.raises(TypeError, match="neither bytes nor text"):
        seen.new_mask(numpy.array([1.5]))
    with pytest.raises(TypeError, match="neither bytes nor text"):
        seen.new_mask(numpy.zeros((0, 3)))
