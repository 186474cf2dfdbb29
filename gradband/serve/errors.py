"""How the service refuses a request: a status and one sentence."""


class RefusalError(Exception):
    """A refused request, with its HTTP status."""

    status = 400

    def __init__(self, message: str, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class UnauthorizedError(RefusalError):
    """No valid token."""

    status = 401


class ForbiddenError(RefusalError):
    """A token whose role does not allow this."""

    status = 403


class NotFoundError(RefusalError):
    """No test, policy or decision of this name."""

    status = 404


class TooSlowError(RefusalError):
    """A body that does not arrive."""

    status = 408


class ConflictError(RefusalError):
    """A request that conflicts with an earlier one."""

    status = 409


class TooLargeError(RefusalError):
    """A body above its limit."""

    status = 413


class UnsupportedError(RefusalError):
    """A body that is not of the type that the route takes."""

    status = 415


class InvalidError(RefusalError):
    """A request with invalid contents."""

    status = 422


class TooManyError(RefusalError):
    """More requests than the token may make."""

    status = 429


class UnavailableError(RefusalError):
    """The database did not confirm. The request may be repeated, with the same id."""

    status = 503
