"""The routes, as FastAPI describes them in the OpenAPI document."""

import asyncio
from typing import Annotated, Any, Literal

from fastapi import Body, Depends, FastAPI, Path, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, StreamingResponse
from fastapi.routing import APIRoute
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer
from starlette.exceptions import HTTPException

from gradband import __version__
from gradband.core.errors import InputError
from gradband.core.files import to_json
from gradband.serve import models, ofrep, operations, reading
from gradband.serve.errors import RefusalError, UnavailableError
from gradband.serve.gate import decide, explain, reward
from gradband.serve.limits import KEY, LABEL
from gradband.serve.live_updates import LiveUpdates
from gradband.serve.service import Service
from gradband.serve.tokens import Token

DESCRIPTION = """Plays bandit policies for many tests at once.

Every answer is on disk before it is sent. You can repeat requests with an id: nothing happens twice."""
TOLD = {
    400: "The body is not JSON.",
    401: "There is no valid token.",
    403: "The token's role does not allow this.",
    404: "There is no such test, arm, policy or decision.",
    408: "The body did not arrive in time.",
    409: "This conflicts with an earlier request.",
    413: "The body is too large.",
    415: "The body is not JSON.",
    422: "The request is invalid.",
    429: "The token has made too many requests; Retry-After says when to try again.",
    503: "The database did not confirm; repeat the request.",
}
ERRORS: dict[int | str, dict[str, Any]] = {
    status: {"model": models.Error, "description": told} for status, told in TOLD.items()
}
PATIENCE = 5.0  # seconds, of /readyz
INLINE = "style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:"
KeyPath = Annotated[str, Path(pattern=KEY, description="The name of a test.")]
LabelPath = Annotated[str, Path(pattern=LABEL, description="The name of an arm.")]
bearer = HTTPBearer(auto_error=False, description="A token that `gradband serve token` printed.")


def service_of(request: Request) -> Service:
    found: Service = request.app.state.service
    return found


class Needs:
    """A dependency: the token of a request, which must have a right."""

    def __init__(self, right: str) -> None:
        self.right = right

    async def __call__(
        self,
        request: Request,
        _: Annotated[HTTPAuthorizationCredentials | None, Depends(bearer)],
    ) -> Token:
        header = request.headers.get("authorization", "")
        return await service_of(request).admit(header, self.right)


Admin = Annotated[Token, Depends(Needs("admin"))]
Read = Annotated[Token, Depends(Needs("read"))]
Decide = Annotated[Token, Depends(Needs("decide"))]
The = Annotated[Service, Depends(service_of)]


def create_api(service: Service) -> FastAPI:
    """The application with all routes but the board's."""
    app = FastAPI(
        title="gradband",
        version=__version__,
        description=DESCRIPTION,
        responses=ERRORS,
        docs_url=None,  # its page would load scripts from another host
        redoc_url=None,
    )
    app.state.service = service
    app.state.live = LiveUpdates(service)
    for handled in (RefusalError, InputError, RequestValidationError, HTTPException):
        app.add_exception_handler(handled, answer_error)
    app.add_exception_handler(Exception, answer_failure)
    add_tests(app)
    add_decisions(app)
    add_reports(app)
    add_policies(app)
    add_flags(app)
    add_operations(app)
    return app


def add_tests(app: FastAPI) -> None:
    """Routes of the life of a test."""

    @app.get("/v1/tests", tags=["tests"], response_model=models.Tests)
    async def list_tests(service: The, _: Read) -> Any:
        # Thousands of them would keep FastAPI's validation, and with it all others, busy.
        return Response(await service.reader.read(reading.list_tests), media_type="application/json")

    @app.post("/v1/tests", tags=["tests"], status_code=201, response_model=models.Test)
    async def create_test(service: The, token: Admin, body: models.NewTest) -> Any:
        spec = body.model_dump(exclude={"key"})
        return await service.ask(body.key, operations.create, spec, token.name)

    @app.get("/v1/tests/{key}", tags=["tests"], response_model=models.Test)
    async def show_test(service: The, _: Read, key: KeyPath) -> Any:
        return await service.ask(key, operations.show)

    def add_step(step: str) -> None:
        @app.post(
            f"/v1/tests/{{key}}/{step}", tags=["tests"], response_model=models.Test, name=f"{step}_test"
        )
        async def change(service: The, token: Admin, key: KeyPath, body: models.Why | None = None) -> Any:
            reason = body.reason if body else ""
            return await service.ask(key, operations.change_status, step, reason, token.name)

    for step in operations.LEADS_TO:
        add_step(step)

    @app.post("/v1/tests/{key}/arms", tags=["tests"], response_model=models.Test)
    async def add_arm(service: The, token: Admin, key: KeyPath, body: models.NewArm) -> Any:
        return await service.ask(key, operations.add_arm, body.label, token.name)

    @app.post("/v1/tests/{key}/arms/{label}/retire", tags=["tests"], response_model=models.Test)
    async def retire_arm(
        service: The, token: Admin, key: KeyPath, label: LabelPath, body: models.Why | None = None
    ) -> Any:
        reason = body.reason if body else ""
        return await service.ask(key, operations.retire_arm, label, reason, token.name)

    @app.put("/v1/tests/{key}/policy", tags=["tests"], response_model=models.Test)
    async def swap_policy(service: The, token: Admin, key: KeyPath, body: models.NewPolicy) -> Any:
        return await service.ask(key, operations.swap, body.policy, body.reason, token.name)

    @app.get("/v1/tests/{key}/weights", tags=["tests"], response_model=models.Weights)
    async def show_weights(service: The, _: Read, key: KeyPath) -> Any:
        return await service.ask(key, operations.weights)

    @app.post("/v1/tests/{key}/weights", tags=["tests"], response_model=models.Weights)
    async def show_weights_in_context(service: The, _: Read, key: KeyPath, body: models.Segment) -> Any:
        return await service.ask(key, operations.weights, body.context)


def add_decisions(app: FastAPI) -> None:
    """Describes decisions and rewards. The gate answers them, unless it is left out."""

    @app.post("/v1/tests/{key}/decide", tags=["decisions"], response_model=models.Decision)
    async def make_decision(
        service: The, _: Decide, key: KeyPath, body: models.DecisionRequest | None = None
    ) -> Any:
        return await decide(service, key, body.model_dump() if body else {})

    @app.post("/v1/tests/{key}/reward", tags=["decisions"], response_model=models.Reward)
    async def give_reward(service: The, _: Decide, key: KeyPath, body: models.RewardRequest) -> Any:
        return await reward(service, key, body.model_dump())


def add_reports(app: FastAPI) -> None:
    """Reports on a test, in three formats."""
    kinds = {"json": "application/json", "csv": "text/csv", "html": "text/html"}
    described: dict[int | str, dict[str, Any]] = {200: {"content": {kind: {} for kind in kinds.values()}}}

    @app.get("/v1/tests/{key}/report", tags=["tests"], response_class=Response, responses=described)
    async def report(
        service: The, _: Read, key: KeyPath, format: Literal["json", "csv", "html"] = "json"
    ) -> Response:
        """Who leads, by how much, and whether you may stop."""
        found = await service.reporter.read(service.reports.report, key)
        if format == "json":
            return Response(to_json(found.as_dict()), media_type=kinds[format])
        text = found.to_csv() if format == "csv" else found.to_html()
        # Sandboxed: scripts and styles of the page cannot reach the board or the API.
        headers = {"Content-Security-Policy": "sandbox allow-scripts; default-src 'none'; " + INLINE}
        return Response(text, media_type=kinds[format], headers=headers)


def add_policies(app: FastAPI) -> None:
    """Routes of stored policies."""

    @app.get("/v1/policies", tags=["policies"], response_model=models.Policies)
    async def list_policies(service: The, _: Read) -> Any:
        return {"policies": await service.reader.read(reading.list_policies)}

    @app.post("/v1/policies", tags=["policies"], status_code=201, response_model=models.Policy)
    async def upload_policy(
        service: The, _: Admin, body: Annotated[bytes, Body(media_type="application/octet-stream")]
    ) -> Any:
        return await service.upload(body)


def add_flags(app: FastAPI) -> None:
    """Describes OpenFeature's protocol. The gate answers it, unless it is left out."""
    failed = {"model": models.FlagError, "description": "The context cannot be evaluated."}
    missing = {"model": models.FlagError, "description": "There is no such test."}

    @app.post(
        "/ofrep/v1/evaluate/flags/{key}",
        tags=["flags"],
        response_model=models.Flag,
        responses={400: failed, 404: missing},
    )
    async def evaluate_flag(
        request: Request, service: The, _: Decide, key: str, body: models.Evaluation
    ) -> Any:
        """OpenFeature's protocol: a test as a flag."""
        return await evaluate(request, service, key)

    @app.post(
        "/ofrep/v1/evaluate/flags",
        tags=["flags"],
        response_model=models.Flags,
        responses={400: failed, 304: {"description": "The unit has the arms that it had."}},
    )
    async def evaluate_flags(request: Request, service: The, _: Decide, body: models.Evaluation) -> Any:
        """OpenFeature's protocol: all running tests as flags."""
        return await evaluate(request, service, "")

    async def evaluate(request: Request, service: Service, key: str) -> Response:
        headers = dict(request.headers.raw)
        status, answer, pairs = await ofrep.evaluate(service, key, await request.body(), headers)
        more = {name.decode(): value.decode() for name, value in pairs}
        return Response(to_json(answer) if answer else None, status, more, "application/json")


def add_operations(app: FastAPI) -> None:
    """Routes for operators of the service."""

    @app.get("/v1/me", tags=["operations"], response_model=models.Me)
    async def show_token(token: Read) -> Any:
        """Name and role of the request's token."""
        return {"name": token.name, "role": token.role}

    @app.get("/healthz", tags=["operations"])
    async def is_alive() -> dict[str, str]:
        """Whether the process answers."""
        return {"status": "ok"}

    @app.get("/readyz", tags=["operations"])
    async def is_ready(service: The) -> dict[str, str]:
        """Whether requests can be answered: the database can be read, and turns are taken."""
        if service.stopping.is_set():
            raise UnavailableError("the service is stopping")
        try:
            async with asyncio.timeout(PATIENCE):
                await service.reader.read(reading.alive)
                await service.batcher.submit("", operations.nothing)
        except TimeoutError:
            raise UnavailableError(f"the database has not answered for {PATIENCE:g} seconds") from None
        return {"status": "ok"}

    @app.get("/metrics", tags=["operations"], response_class=Response)
    async def show_metrics(service: The, _: Read) -> Response:
        return Response(service.metrics.text(), media_type="text/plain; version=0.0.4")

    @app.get("/v1/live", tags=["tests"], response_class=StreamingResponse)
    async def watch(request: Request, _: Read) -> StreamingResponse:
        """Server-sent events: the versions of tests that have changed, at most once per second."""
        lines = request.app.state.live.listen()
        return StreamingResponse(lines, media_type="text/event-stream")


async def answer_error(request: Request, error: Exception) -> JSONResponse:
    """Any refusal as JSON, in the same shape."""
    if isinstance(error, RequestValidationError):
        status, told, headers = 422, {"error": _sentence(error)}, {}
    elif isinstance(error, HTTPException):
        status, told, headers = error.status_code, {"error": str(error.detail)}, dict(error.headers or {})
        if status == 405:  # the routes of a path are several, each with one method
            headers["Allow"] = ", ".join(sorted(methods_of(request)))
    else:
        status, told, pairs = explain(error)
        headers = {name.decode(): value.decode() for name, value in pairs}
    return JSONResponse(told, status, headers)


def methods_of(request: Request) -> set[str]:
    """The methods that a path takes."""
    path = request.scope["path"]
    found: set[str] = set()
    for route in request.app.router.routes:
        if isinstance(route, APIRoute) and route.path_regex.match(path):
            found |= route.methods or set()
    return found


async def answer_failure(request: Request, error: Exception) -> JSONResponse:
    """The answer to a bug. Its traceback is in the log."""
    return JSONResponse({"error": "the service failed: its log has the reason"}, 500)


def _sentence(error: RequestValidationError) -> str:
    """The first thing that is wrong, and where."""
    first = error.errors()[0]
    place = ".".join(str(part) for part in first["loc"][1:]) or "the body"
    return f"{place}: {first['msg']}"
