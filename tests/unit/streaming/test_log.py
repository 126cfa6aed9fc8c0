"""Where the sink's lines go: to the program's own handlers, or to the standard error."""

import subprocess
import sys

import pytest

_LINE = """
import logging, sys
from bucketline.streaming.log import log_to_standard_error
{setup}
log_to_standard_error()
log_to_standard_error()
{then}
logging.getLogger("bucketline.progress").info("batch 1")
"""


@pytest.mark.parametrize(
    ("setup", "then", "lines"),
    [
        ("", "", ["INFO bucketline.progress: batch 1"]),
        ("logging.basicConfig(format='own %(message)s', level='INFO')", "", ["own batch 1"]),
        ("logging.basicConfig()", "", []),
        ("logging.getLogger('bucketline').setLevel('WARNING')", "", []),
        ("", "logging.basicConfig(format='own %(message)s')", ["own batch 1"]),
        ("logging.getLogger('bucketline.progress').addHandler(logging.NullHandler())", "", []),
    ],
)
def test_lines_appear_once_and_where_the_program_wants_them(setup: str, then: str, lines: list[str]) -> None:
    program = _LINE.format(setup=setup, then=then)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    found = done.stderr.splitlines()
    assert len(found) == len(lines) and all(a.endswith(b) for a, b in zip(found, lines, strict=True)), found
