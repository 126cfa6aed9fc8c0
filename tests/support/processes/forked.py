"""Processes for tests in which writers race, forked from one that has imported the product: to import takes longest."""

import multiprocessing
from multiprocessing.context import ForkServerContext


def forking() -> ForkServerContext:
    """Starts processes that have no threads, locks and open files of the test's own. They share the environment and the
    hash seed of the first of them."""
    context = multiprocessing.get_context("forkserver")
    # The list counts only before the server starts, with the first process of a test session.
    context.set_forkserver_preload(["bucketline.state.store.table.table"])
    return context
