"""What the soak reads out of tools and processes."""

import os

import psutil

from tests.soak.watched import Watched, heap_in

SERIAL = """4711:
 def new generation   total 116224K, used 20480K [0x00000000da800000, 0x00000000e2610000, 0x00000000e7000000)
  eden space 103360K,  40% used [0x00000000da800000, 0x00000000dd133330, 0x00000000e0cf0000)
 tenured generation   total 258048K, used 10240K [0x00000000e7000000, 0x00000000f6c00000, 0x0000000100000000)
   the space 258048K,  20% used [0x00000000e7000000, 0x00000000ea442cf8, 0x00000000ea442e00, 0x00000000f6c00000)
 Metaspace       used 126147K, committed 127360K, reserved 1179648K
  class space    used 16882K, committed 17472K, reserved 1048576K
"""


def test_the_heap_is_the_sum_of_its_generations_without_classes() -> None:
    assert heap_in(SERIAL) == 30.0


def test_a_process_that_has_ended_adds_nothing_and_one_that_lives_adds_what_it_uses() -> None:
    watched = Watched()
    watched.look("nobody", [], 1.0)
    watched.look("me", [psutil.Process(os.getpid())], 2.0)
    assert set(watched.series) == {"me memory", "me threads", "me sockets"}
    [(time, memory)] = watched.series["me memory"]
    assert time == 2.0 and 1 < memory < 100_000
