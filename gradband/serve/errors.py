"""How the service refuses a request: a status and one sentence."""


class RefusalError(Exception):
    """A refused request, with its HTTP status."""

    status: int

    def __init_subclass__(cls, status: int) -> None:
        cls.status = status

    def __init__(self, message: str, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class UnauthorizedError(RefusalError, status=401):
    """No valid token."""


class ForbiddenError(RefusalError, status=403):
    """A token whose role does not allow this."""


class NotFoundError(RefusalError, status=404):
    """No test, policy or decision of this name."""


class TooSlowError(RefusalError, status=408):
    """A body that does not arrive."""


class ConflictError(RefusalError, status=409):
    """A request that conflicts with an earlier one."""


class TooLargeError(RefusalError, status=413):
    """A body above its limit."""


class UnsupportedError(RefusalError, status=415):
    """A body that is not of the type that the route takes."""


class InvalidError(RefusalError, status=422):
    """A request with invalid contents."""


class TooManyError(RefusalError, status=429):
    """More requests than the token may make."""


class UnavailableError(RefusalError, status=503):
    """The database did not confirm. The request may be repeated, with the same id."""
