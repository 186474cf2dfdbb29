"""How the service is started."""

import dataclasses

from gradband.core.errors import InputError, positive, whole


@dataclasses.dataclass(frozen=True)
class Options:
    """The settings of `gradband serve`."""

    db: str = dataclasses.field(repr=False)
    """a SQLite file or postgresql://…, which may hold a password"""
    host: str = "127.0.0.1"
    port: int = 8000
    workers: int = 1
    rate: float = 10_000.0
    """requests per second that each token may make, per worker"""
    grace: int = 20
    """seconds until requests that are being answered are given up at the end"""

    def __post_init__(self) -> None:
        whole("port", self.port, 0, 65535)
        whole("workers", self.workers, 1, 256)
        whole("grace", self.grace, 1, 3600)
        positive("rate", self.rate)
        if self.workers > 1 and "://" not in self.db:
            raise InputError("SQLite takes one worker: use PostgreSQL for more")
