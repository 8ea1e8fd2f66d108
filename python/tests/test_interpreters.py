"""Several interpreters in a process."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

#: What each interpreter does.
IMPORT = """
try:
    import ebbtide
    said = "imported"
except ImportError as error:
    said = str(error)
with open({!r}, "a") as file:
    print(said, file=file)
"""

#: Makes two interpreters one after the other, as mod_wsgi does, then uses its own; or that before.
PROGRAM = """
import sys
try:
    import _xxsubinterpreters as interpreters
    kind = {"isolated": False}
except ImportError:
    import _interpreters as interpreters
    kind = {"config": "legacy"}

_, use, order = sys.argv
if order == "own first":
    exec(use)
for _ in range(2):
    other = interpreters.create(**kind)
    interpreters.run_string(other, use)
    interpreters.destroy(other)
exec(use)
"""
REFUSED = "module ebbtide._ebbtide does not support loading in subinterpreters"


@pytest.mark.parametrize(
    "order, expected",
    [
        ("own first", ["imported", REFUSED, REFUSED, "imported"]),
        ("own last", ["imported", REFUSED, REFUSED]),
    ],
)
def test_only_one_interpreter_of_a_process_can_import_the_package(
    tmp_path: Path, order: str, expected: list[str]
) -> None:
    pytest.importorskip("_interpreters" if sys.version_info >= (3, 13) else "_xxsubinterpreters")
    said = tmp_path / "said"
    use = IMPORT.format(str(said))
    subprocess.run([sys.executable, "-c", PROGRAM, use, order], check=True, timeout=120)
    assert said.read_text().splitlines() == expected


def test_the_interpreter_that_has_imported_the_package_may_do_so_again() -> None:
    program = """
import sys
import ebbtide
for name in [name for name in sys.modules if name.startswith("ebbtide")]:
    del sys.modules[name]
import ebbtide
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=120)
