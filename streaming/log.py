"""Sends the log lines of `bucketline` to the handlers of the program. If the program has none, they go to the standard
error.
"""

import logging

_ROOT, _PROGRESS = "bucketline", "bucketline.progress"
_FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"


class _LastHandler(logging.StreamHandler):  # type: ignore[type-arg]
    """Writes to the standard error while the program has no handler of its own."""

    def emit(self, record: logging.LogRecord) -> None:
        if not logging.getLogger().handlers:
            super().emit(record)


def log_to_standard_error() -> None:
    """Shows the lines of the library's loggers from INFO on, if the program has not set up logging.

    A program that has handlers, or has set a level for `bucketline`, decides by itself.
    """
    logger = logging.getLogger(_ROOT)
    if logging.getLogger(_PROGRESS).hasHandlers():
        return
    handler = _LastHandler()
    handler.setFormatter(logging.Formatter(_FORMAT))
    logger.addHandler(handler)
    if logger.level == logging.NOTSET:
        logger.setLevel(logging.INFO)
