"""A program that uses every name of the module, for strict type checks; it runs, too."""

from __future__ import annotations

import asyncio
import sys
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import TYPE_CHECKING

import numpy

import ebbtide

if TYPE_CHECKING:
    ebbtide.Decaying(1000, epoch="1m", decay="linear", window_epochs=8)
    ebbtide.Decaying(1000)  # type: ignore[call-overload]
    ebbtide.Decaying(1000, 0.5)  # type: ignore[call-overload]


def kinds() -> list[ebbtide.Spec]:
    return [
        ebbtide.Fingerprint(last=1000),
        ebbtide.AgePartitioned(1000, fpr=0.01),
        ebbtide.TimeLimited(timedelta(minutes=10)),
        ebbtide.Timing(1000),
        ebbtide.BlockTiming(1000),
        ebbtide.DoubleBuffering(1000),
        ebbtide.TwoBuffer(1000),
        ebbtide.Bloom(1000),
        ebbtide.Counting(1000),
        ebbtide.Spectral(1000, policy="ms"),
        ebbtide.DynamicCount(1000),
        ebbtide.Decaying(1000, 0.5, "1m"),
        ebbtide.DecayingOptimized(1000, 0.5, 60),
        ebbtide.Stable(100_000, 7, 5, 100),
        ebbtide.Importance2c(100_000, 7, 5, 20),
        ebbtide.ImportanceMc(100_000, 7, 5, 20),
        ebbtide.ImportanceH(100_000, 7, 5, 20),
    ]


def errors() -> list[type[ebbtide.Error]]:
    return [
        ebbtide.BadParameter,
        ebbtide.ClaimsFull,
        ebbtide.Closed,
        ebbtide.Conflict,
        ebbtide.Crowded,
        ebbtide.Damaged,
        ebbtide.Exists,
        ebbtide.Forked,
        ebbtide.FullDisk,
        ebbtide.InProgress,
        ebbtide.IoError,
        ebbtide.LeaseLost,
        ebbtide.Locked,
        ebbtide.Mismatch,
        ebbtide.NotAFilter,
        ebbtide.NotKept,
        ebbtide.Poisoned,
        ebbtide.Retired,
        ebbtide.TimeAhead,
        ebbtide.TooLate,
        ebbtide.Unsupported,
        ebbtide.WrongVersion,
    ]


def window(home: Path) -> None:
    key: ebbtide.Key = "order 17"
    now: ebbtide.Time = datetime.now(timezone.utc)
    ten_minutes: ebbtide.Duration = "10m"
    seen: ebbtide.Filter = ebbtide.open(home, ebbtide.TimeLimited(ten_minutes))
    with seen:
        new: bool = seen.check_and_insert(key, time=now, durability="always")
        assert new and seen.contains(key) and key in seen and not seen.closed
        seen.insert(b"bytes")
        seen.add("as of a set", time=now)
        age: timedelta | int | None = seen.age(key)
        assert age is not None and seen.seen_within(key, 60)
        assert seen.seen_within(key, numpy.timedelta64(60, "s"))
        distinct: ebbtide.Cardinality = seen.distinct_within(60, time=now)
        assert 0.0 < distinct.keys <= seen.distinct().keys and distinct.standard_error >= 0.0
        answers: bytes = seen.check_and_insert_all(["a", b"b", "a"], since="last-accepted")
        assert list(answers) == [1, 1, 0] and seen.insert_all(iter(["c"])) == 1
        assert list(seen.contains_all(ebbtide.raw(memoryview(b"xy")))) == [0, 0]
        selected: list[bool] = seen.new_mask(["m", "m"], time=now).tolist()
        assert selected == [True, False] and seen.contains_mask(["m"]).all()
        names: list[str] = list(seen.only_new(["d", "d"], batch=10))
        pairs: list[tuple[str, int]] = list(seen.only_new([("e", 1)], key=lambda pair: pair[0]))
        assert names == ["d"] and pairs == [("e", 1)]
        probable: float = seen.posterior(key, 1e-6, rate=10, time=now)
        likely: bool = seen.decide(key, 0.5, false_positive=1, false_negative=1, rate=10.5)
        assert 0.0 < probable <= 1.0 and likely
        seen.sync()
        first: int = seen.checkpoint()
        stat: ebbtide.Stat = seen.stat()
        assert first >= 0 and stat.inserts == 11 and stat.time is not None
        digest: ebbtide.Digest = seen.digest()
        assert len(digest.value) == 32
        batch: ebbtide.Batch = seen.batch(durability="never", since="last-seen")
        with batch:
            again: bool = batch.check_and_insert(key, time=now)
            batch.insert(b"more", weight=None)
            batch.set_position(1, 100)
            assert not again and batch and len(batch) == 2 and batch.path == seen.path
        batch.insert("forgotten")
        batch.clear()
        batch.commit()
        place: int | None = seen.position(1)
        places: dict[int, int] = seen.positions()
        assert place == 100 and places == {1: 100} and seen.position(2) is None
        seen.backup(home.with_name("backup"))
        assert seen.path == str(home) and seen.kind == "time-limited"
        assert "window" in seen.parameters
        with ebbtide.Reader(home) as reader:
            reads(reader, key)
        seen.clear()
    seen.close()


def reads(reader: ebbtide.Reader, key: ebbtide.Key) -> None:
    assert key in reader and reader.contains(key) and reader.contains_all([key]) == b"\x01"
    assert reader.contains_mask([key]).all()
    assert reader.age(key) is not None and reader.seen_within(key, "5m")
    assert reader.distinct().keys >= reader.distinct_within(60).keys
    assert reader.kind == "time-limited" and reader.path and reader.parameters
    assert reader.stat().handles == 1 and reader.digest().inserts == 13 and not reader.closed
    assert reader.position(1) == 100 and reader.positions() == {1: 100}
    for ask in (reader.estimate, reader.frequency):
        try:
            ask(key)
        except ebbtide.Unsupported as error:
            assert error.kind == "time-limited"
    assert reader.posterior(key, 0.5, rate=10) > 0.5
    assert reader.decide(key, 0.5, false_positive=1, false_negative=1, rate=10)
    try:
        reader.estimate_all([key])
    except ebbtide.Error as error:
        assert error.code > 0
    reader.close()


def claims(home: Path) -> None:
    with ebbtide.open(home, ebbtide.Fingerprint(last=1000)) as seen:
        with seen.claim("a", lease="30s", time=None, durability="never") as claim:
            mine: bool = claim.is_mine
            until: datetime | None = claim.extend(timedelta(minutes=1))
            token: int | None = claim.token
            assert mine and claim and until == claim.until and token is not None
            assert not claim.seen and not claim.in_progress
        claim = seen.claim("b", lease=30)
        listed: list[ebbtide.OpenClaim] = seen.claims()
        assert listed[0].token == claim.token and seen.stat().claims == 1
        kept: int = claim.keep()
        resumed: ebbtide.Claim = seen.resume_claim("b", kept)
        batch = seen.batch()
        batch.confirm(resumed)
        batch.commit()
        claim = seen.claim("c", lease=30)
        released: bool = claim.release()
        ended: bool = seen.end_claim("c")
        assert "b" in seen and released and not ended
        claim = seen.claim("c", lease=30)
        claim.confirm()
        asyncio.run(once(seen))


async def once(seen: ebbtide.Filter) -> None:
    @ebbtide.once(seen, key=lambda name: name, lease="30s")
    def length(name: str) -> int:
        return len(name)

    @ebbtide.once(seen, key=lambda name: name, lease="30s", default="before")
    async def upper(name: str) -> bytes:
        return name.upper().encode()

    first: int | None = length("d")
    second: bytes | str = await upper("d")
    assert first == 1 and second == "before"
    async with seen.claim("e", lease=30) as claim:
        mine: bool = claim.is_mine
    assert mine and "e" in seen


def counts(home: Path) -> None:
    with ebbtide.open(home, ebbtide.Decaying(1000, 0.5, "1h"), stripes=4) as seen:
        counted: ebbtide.Estimate = seen.insert_and_estimate("a", weight=3)
        admitted: ebbtide.Admission = seen.insert_up_to("a", 3)
        assert counted.count == 3 and not admitted.admitted
        assert seen.estimate("a").count == 3 and len(seen.estimate_all(["a", "b"])) == 2
        frequency: ebbtide.Estimate = seen.frequency("a")
        assert frequency.count > 0
        try:
            seen.remove("a")
        except ebbtide.Unsupported as error:
            assert error.operation == "remove"
        try:
            seen.decide("a", 0.5, false_positive=1, false_negative=2)
        except ebbtide.Unsupported as error:
            assert error.code == 17


def past(home: Path) -> None:
    spec = ebbtide.Fingerprint(last=1000)
    with ebbtide.open(home, spec, keep_log=timedelta(days=1), durability="always") as seen:
        seen.insert("a")
        moment: ebbtide.Moment = f"lsn:{seen.stat().lsn - 1}"
        seen.clear()
        kept: tuple[str, int | None, int] = (
            seen.stat().keep_log,
            seen.stat().kept_log_from,
            seen.stat().kept_log_bytes,
        )
        age: timedelta | None = seen.stat().kept_log_for
        is_short: bool = seen.stat().kept_log_is_short
        assert not is_short
        assert kept[0] != "nothing" and kept[1] == 0 and (age is None or age >= timedelta(0))
        log: ebbtide.History = ebbtide.history(home, after="lsn:0", durable=True)
        commits: list[ebbtide.Commit] = list(log)
        first: ebbtide.Operation = commits[0].operations[0]
        more: ebbtide.Commit | None = log.wait(0)
        place: int = log.position
        assert first.kind == "insert" and more is None and place > commits[-1].lsn
        with ebbtide.Reader(home, at=moment) as reader:
            assert "a" in reader and "a" not in seen
        ebbtide.restore(home, home.with_name("then"), at=datetime.now(timezone.utc))
        plan: ebbtide.AlterationPlan = ebbtide.plan_alteration(home, "fingerprint last=2000")
        assert plan.has_window and plan.first_lsn == 1 and plan.records > 1
        assert plan.memory_after > plan.memory_before and plan.since == first.time
        named: int = seen.key_hash("a")
        share: int = ebbtide.share_of(named, 2)
        assert first.hash == named and not first.is_stream_time and share in (0, 1)
        altered: ebbtide.Altered = seen.alter(ebbtide.Fingerprint(last=2000), forget=False)
        since: datetime | None = altered.since
        stopped: timedelta = altered.stopped
        assert altered.is_whole and altered.operations == 1 and altered.lsn > 1
        assert since is not None and stopped > timedelta(0)
        made: ebbtide.Remade = ebbtide.remake(
            [home], home.with_name("part"), "fingerprint last=50", share=(0, 2), keep_log="1h"
        )
        assert made.is_whole and made.operations <= 1 and made.since in (None, since)
        try:
            ebbtide.Reader(home, at="lsn:1000000")
        except ebbtide.NotKept as error:
            assert error.wanted == "lsn:1000000" and error.first < error.end and error.path


def files(home: Path) -> None:
    plan: ebbtide.Plan = ebbtide.plan("bloom capacity=1k")
    assert plan.memory_bytes > 0
    ebbtide.restore(home.with_name("backup"), home)
    report: ebbtide.Report = ebbtide.verify(home)
    found: list[ebbtide.FileReport] = report.files
    lost: ebbtide.Salvaged | None = ebbtide.salvage(home, home.with_name("salvaged"))
    assert report.sound and found and lost is None
    keys: ebbtide.Raw = ebbtide.raw(b"ab")
    numbers: ebbtide.Raw = ebbtide.raw(numpy.arange(3))
    assert len(keys) == 2 and len(numbers) == 3 and ebbtide.__version__


def main() -> None:
    home = Path(sys.argv[1]).absolute()
    home.mkdir()
    assert len({spec.kind for spec in kinds()}) == 17 and len(errors()) == 22
    window(home / "window")
    claims(home / "claims")
    counts(home / "counts")
    past(home / "past")
    files(home / "restored")


if __name__ == "__main__":
    main()
