"""The board at `/`: static files of the package, which may load nothing from elsewhere."""

from importlib.resources import files

from fastapi import FastAPI, Response
from starlette.exceptions import HTTPException

TYPES = {
    "css": "text/css; charset=utf-8",
    "html": "text/html; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
}
POLICY = "default-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"


def add_board(app: FastAPI) -> None:
    """Adds the files to the routes, each read once."""
    folder = files("gradband.serve") / "board"
    found = {
        entry.name: entry.read_bytes()
        for entry in folder.iterdir()
        if entry.name.rpartition(".")[2] in TYPES
    }

    @app.get("/", include_in_schema=False)
    @app.get("/board/{name}", include_in_schema=False)
    async def show_file(name: str = "index.html") -> Response:
        if name not in found:
            raise HTTPException(404, "there is no such file")
        headers = {"Content-Security-Policy": POLICY, "Referrer-Policy": "no-referrer"}
        return Response(found[name], media_type=TYPES[name.rpartition(".")[2]], headers=headers)
