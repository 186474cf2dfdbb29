"""Runs the service: one process for SQLite, any number of them for PostgreSQL."""

import contextlib
import logging
import os
import signal
import socket
import sys
import tempfile
from collections.abc import AsyncIterator
from functools import partial
from types import FrameType

import uvicorn
from fastapi import FastAPI

from gradband.core.errors import InputError
from gradband.serve.api import create_api
from gradband.serve.board_files import add_board
from gradband.serve.gate import Gate
from gradband.serve.logs import set_up_logs
from gradband.serve.options import Options
from gradband.serve.service import Service, prepare
from gradband.serve.workers import run_workers

log = logging.getLogger("gradband.serve")
MOST_CONNECTIONS = 8192  # per worker; more are answered with 503
SWITCH = 0.001  # seconds until another thread gets its turn


def create_app(options: Options) -> Gate:
    """The ASGI application of one worker."""
    service = Service(options)
    api = create_api(service)
    add_board(api)

    @contextlib.asynccontextmanager
    async def life(_: FastAPI) -> AsyncIterator[None]:
        await service.start()
        yield
        await service.stop()

    api.router.lifespan_context = life
    return Gate(service, api)


class Server(uvicorn.Server):
    """Tells the application at once when it is to stop, so that streams end; then exits with 0."""

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        app = self.config.app
        if isinstance(app, Gate):
            app.service.stopping.set()
        self.force_exit = self.should_exit and sig == signal.SIGINT  # by pressing Ctrl+C again
        self.should_exit = True


def run(options: Options) -> None:
    """Serves until it is interrupted."""
    set_up_logs()
    prepare(options.db)
    bound = bind(options)
    if options.workers == 1:
        serve(options, bound)
        return
    with tempfile.TemporaryDirectory(prefix="gradband-metrics-") as folder:
        os.environ["PROMETHEUS_MULTIPROC_DIR"] = folder
        run_workers(options.workers, partial(serve, options), bound)


def serve(options: Options, bound: socket.socket) -> None:
    """Serves in this process."""
    set_up_logs()
    sys.setswitchinterval(SWITCH)
    config = uvicorn.Config(
        create_app(options),
        loop="uvloop" if sys.platform != "win32" else "asyncio",
        http="httptools" if sys.platform != "win32" else "h11",
        log_config=None,
        access_log=False,
        server_header=False,
        date_header=False,
        proxy_headers=False,
        timeout_graceful_shutdown=options.grace,
        timeout_keep_alive=75,
        limit_concurrency=MOST_CONNECTIONS,
    )
    Server(config).run(sockets=[bound])


def bind(options: Options) -> socket.socket:
    """The socket that all workers share."""
    family = socket.AF_INET6 if ":" in options.host else socket.AF_INET
    bound = socket.socket(family)
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        bound.bind((options.host, options.port))
    except (OSError, OverflowError) as error:
        bound.close()
        reason = getattr(error, "strerror", None) or str(error)
        raise InputError(f"cannot listen on {options.host}:{options.port}: {reason}") from None
    bound.listen(2048)
    host, port = bound.getsockname()[:2]
    log.info("listening", extra={"host": host, "port": port})
    bound.set_inheritable(True)
    return bound
