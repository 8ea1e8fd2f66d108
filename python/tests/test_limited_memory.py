"""A filter for which the process has no memory is one error, and the process continues."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import ebbtide

LIMITED = """
import resource, sys
import ebbtide

home, spec, image, limit = sys.argv[1:]
seen = ebbtide.open(f"{home}/seen", ebbtide.Bloom(1000), keep_log="24h", background=False)
seen.insert("order 17")
limit = int(limit) + int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
calls = {
    "open": lambda: ebbtide.open(f"{home}/large", spec, image=image),
    "remake": lambda: ebbtide.remake([f"{home}/seen"], f"{home}/made", spec),
    "alter": lambda: seen.alter(spec),
}
for name, call in calls.items():
    try:
        call()
        print(name, "succeeded")
    except (ebbtide.Error, MemoryError) as error:
        print(name, type(error).__name__, error)
assert "order 17" in seen and ebbtide.plan(spec).memory_bytes > limit
seen.insert("order 18")
seen.close()
print("alive")
"""

#: Terabytes, for which the disk has no room; and gigabytes, more than the process may have.
NEVER = [
    "bloom capacity=4000000000000",
    "fingerprint last=3000000000000",
    "counting capacity=500000000000 counter-bits=8",
]
NOT_HERE = [
    "bloom capacity=200000000000",
    "bloom capacity=2000000000",
    "fingerprint last=1000000000",
    "age-partitioned last=1000000000",
]


@pytest.mark.parametrize("image", ["memory", "beside-log"])
@pytest.mark.parametrize("spec", NEVER + NOT_HERE)
def test_a_filter_larger_than_the_memory_of_the_process_is_one_error(
    tmp_path: Path, spec: str, image: str
) -> None:
    arguments = [str(tmp_path), spec, image, str(1 << 28)]
    run = subprocess.run(
        [sys.executable, "-c", LIMITED, *arguments], capture_output=True, text=True, timeout=300
    )
    lines = run.stdout.splitlines()
    assert run.returncode == 0 and run.stderr == "", (run.returncode, lines, run.stderr)
    *refused, last = lines
    assert last == "alive" and len(refused) == 3
    for line in refused:
        _, name, sentence = line.split(" ", 2)
        assert name in ("FullDisk", "IoError", "MemoryError") and "cannot" in sentence, line
    left = sorted(os.listdir(tmp_path))
    assert "made" not in left and ebbtide.verify(tmp_path / "seen").sound, left
