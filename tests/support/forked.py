"""Processes for tests in which writers race, forked from one that has imported the product: to import takes longest."""

import multiprocessing
from multiprocessing.context import ForkServerContext


def forking() -> ForkServerContext:
    """Starts processes with the threads, locks and open files of none of the test's own."""
    context = multiprocessing.get_context("forkserver")
    # What a process runs is imported by its name, once the table is: the first test decides for all of its session.
    context.set_forkserver_preload(["bucketline.state.store.table.table"])
    return context
