"""How full a filter is while keys arrive, and what it says of their ages, as in a notebook.

    python fill_and_ages.py [DIRECTORY]     writes fill.png and ages.png, with matplotlib
    python fill_and_ages.py --demo          prints the figures only

The cells below can be pasted into a notebook one by one.
"""

# %% A filter of ten minutes, fed with an hour of events at a rate that changes
from __future__ import annotations

import math
import sys
import tempfile
from datetime import datetime, timedelta, timezone

import ebbtide

START = datetime(2026, 1, 1, tzinfo=timezone.utc)
WINDOW = timedelta(minutes=10)


def rate(minute: int) -> int:
    """New keys in a minute: quiet, then a peak."""
    return int(500 + 4000 * math.exp(-(((minute - 25) / 6) ** 2)))


minutes: list[int] = []
fill: list[float] = []
error_rate: list[float] = []
memory: list[float] = []
home = tempfile.mkdtemp()
seen = ebbtide.open(f"{home}/seen", ebbtide.Fingerprint(window=WINDOW, fpr=0.001))
for minute in range(60):
    count = rate(minute)
    for part in range(10):
        time = START + timedelta(minutes=minute, seconds=6 * part)
        seen.insert_all((f"{minute} {part} {key}" for key in range(count // 10)), time=time)
    stat = seen.stat()
    minutes.append(minute)
    fill.append(stat.fill)
    error_rate.append(stat.estimated_fpr)
    memory.append(stat.memory_bytes / 1024)

# %% Ages: what the filter says beside the truth, for one key of each of the last 30 minutes
now = START + timedelta(minutes=60)
true_age: list[float] = []
said: list[float | None] = []
for minute in range(30, 60):
    age = seen.age(f"{minute} 0 1", time=now)
    true_age.append((now - START - timedelta(minutes=minute)) / timedelta(minutes=1))
    said.append(age / timedelta(minutes=1) if isinstance(age, timedelta) else None)
seen.close()

for age_in_minutes, answer in zip(true_age, said):
    # Within the window no key is missed, and no age is said that is too high.
    assert age_in_minutes > 10 or answer is not None and answer <= age_in_minutes + 1e-6

# %% Plots
def plot(directory: str) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, (above, below) = pyplot.subplots(2, 1, sharex=True, figsize=(8, 6))
    above.plot(minutes, [100 * share for share in fill], label="fill")
    above.set_ylabel("cells in use, %")
    right = above.twinx()
    right.plot(minutes, memory, color="tab:grey", label="memory")
    right.set_ylabel("memory, KiB")
    below.semilogy(minutes, [max(rate, 1e-9) for rate in error_rate], color="tab:red")
    below.axhline(0.001, linestyle=":", color="black")
    below.set_ylabel("expected false positives")
    below.set_xlabel("minutes")
    figure.suptitle("A window of ten minutes, with a peak in minute 25")
    figure.savefig(f"{directory}/fill.png", dpi=120)

    figure, axes = pyplot.subplots(figsize=(6, 6))
    known = [(x, y) for x, y in zip(true_age, said) if y is not None]
    axes.plot([0, 30], [0, 30], linestyle=":", color="black")
    axes.scatter([x for x, _ in known], [y for _, y in known], s=14)
    axes.axvline(10, color="tab:red")
    axes.set_xlabel("true age, minutes")
    axes.set_ylabel("age by the filter: at least")
    figure.savefig(f"{directory}/ages.png", dpi=120)


if __name__ == "__main__":
    if sys.argv[1:] != ["--demo"]:
        plot(sys.argv[1] if len(sys.argv) > 1 else ".")
    known_ages = sum(answer is not None for answer in said)
    print(
        f"fill_and_ages: fill up to {max(fill):.0%}, memory up to {max(memory):,.0f} KiB, "
        f"ages of {known_ages} of 30 keys known"
    )
