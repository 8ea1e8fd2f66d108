"""A daemon that handles each message once, whatever happens to it.

    python daemon.py STATE < messages
    python daemon.py --demo

Reads lines `ID TEXT`, and prints the text of those whose ID was not seen within ten minutes. Kill
it at any moment and start it again: it continues where it was. While it runs, `ebbtide stat STATE`,
or another program that opens the same directory, sees what it has seen.
"""

from __future__ import annotations

import signal
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path
from types import FrameType

import ebbtide


def stop(_signal: int, _frame: FrameType | None) -> None:
    """SIGTERM ends the daemon as an interrupt does, through the `with` statement."""
    raise KeyboardInterrupt


def run(state: Path, lines: Iterable[str]) -> int:
    """Handles the new messages, and returns how many there were."""
    handled = 0
    # A message that was recorded survives a power cut: it is never handled twice.
    with ebbtide.open(state, ebbtide.Fingerprint(window="10m"), durability="always") as seen:
        try:
            for line in lines:
                identifier, _, text = line.rstrip("\n").partition(" ")
                if seen.check_and_insert(identifier):
                    print(text, flush=True)
                    handled += 1
        except KeyboardInterrupt:
            print("stopped", file=sys.stderr)
        stat = seen.stat()
        print(f"{handled} new; {stat.inserts} so far, fill {stat.fill:.2%}", file=sys.stderr)
    return handled


def main() -> None:
    if sys.argv[1:] == ["--demo"]:
        messages = [f"{number % 7} message {number}\n" for number in range(20)]
        with tempfile.TemporaryDirectory() as home:
            state = Path(home) / "seen"
            # The second run has seen all of them.
            assert run(state, messages) == 7 and run(state, messages) == 0
        print("daemon: 7 of 20 messages were new, and none after a restart")
        return
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    signal.signal(signal.SIGTERM, stop)
    run(Path(sys.argv[1]), sys.stdin)


if __name__ == "__main__":
    main()
