"""moto's server, one request at a time: it looks at the condition of a PUT before it stores the object, so that of two
PUTs that came together both could win. Its one argument is the port."""

import os
import sys
from collections.abc import Callable, Iterable
from threading import Lock
from typing import Any

from moto.moto_server.werkzeug_app import DomainDispatcherApplication, MotoRequestHandler, create_backend_app
from werkzeug.serving import run_simple

HOST = "127.0.0.1"


class InTurn:
    """A WSGI application that answers one request after the other."""

    def __init__(self, application: Callable[..., Iterable[bytes]]) -> None:
        self._application = application
        self._turn = Lock()

    def __call__(self, environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        with self._turn:
            return self._application(environ, start_response)


def main(port: str) -> None:
    os.environ["MOTO_PORT"] = port
    application = InTurn(DomainDispatcherApplication(create_backend_app))
    run_simple(HOST, int(port), application, threaded=True, request_handler=MotoRequestHandler)


if __name__ == "__main__":
    main(sys.argv[1])
