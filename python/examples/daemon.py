"""A daemon that handles no message twice, whatever happens to it.

    python daemon.py STATE < messages
    python daemon.py --demo

Reads lines `ID TEXT`, and prints the text of those whose ID was not seen within ten minutes. Stop
it and start it again: it continues where it was. A kill or a power cut between the record and the
text suppresses that one message; where it must not, claim the ID, and confirm the claim when the
work is done. While it runs, `ebbtide stat STATE`, or another program that opens the same directory,
sees what it has seen.
"""

from __future__ import annotations

import signal
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path
from types import FrameType

import ebbtide


class Stop:
    """A signal ends the daemon through the `with` statement: at once while it waits for a line,
    else when the message that it works on is handled, because its ID may be recorded. A second one
    ends it at once."""

    is_busy = False
    is_asked = False

    def __call__(self, _signal: int, _frame: FrameType | None) -> None:
        is_second, self.is_asked = self.is_asked, True
        if is_second or not self.is_busy:
            raise KeyboardInterrupt


def run(state: Path, lines: Iterable[str], stop: Stop) -> int:
    """Handles the new messages, and returns how many there were."""
    handled = 0
    # A message that was recorded survives a power cut: it is never handled twice.
    with ebbtide.open(state, ebbtide.Fingerprint(window="10m"), durability="always") as seen:
        try:
            for line in lines:
                stop.is_busy = True
                identifier, _, text = line.rstrip("\n").partition(" ")
                if seen.check_and_insert(identifier):
                    print(text, flush=True)
                    handled += 1
                stop.is_busy = False
                if stop.is_asked:
                    break
        except KeyboardInterrupt:
            pass
        stat = seen.stat()
        print(f"{handled} new; {stat.inserts} so far, fill {stat.fill:.2%}", file=sys.stderr)
    return handled


def main() -> None:
    if sys.argv[1:] == ["--demo"]:
        messages = [f"{number % 7} message {number}\n" for number in range(20)]
        with tempfile.TemporaryDirectory() as home:
            state = Path(home) / "seen"
            # The second run has seen all of them.
            assert run(state, messages, Stop()) == 7 and run(state, messages, Stop()) == 0
        print("daemon: 7 of 20 messages were new, and none after a restart")
        return
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    stop = Stop()
    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGINT, stop)
    run(Path(sys.argv[1]), sys.stdin, stop)


if __name__ == "__main__":
    main()
