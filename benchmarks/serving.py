"""Decisions and rewards per second through HTTP, all durable, beside a plain handler.

Run `python benchmarks/serving.py` for both on this machine; the clients run here too, and take their share
of the cores. A pair is a decision and its reward, one after the other on the same connection; nothing is
pipelined. Latencies are those of single requests.

The plain handler is what you would write first: FastAPI, SQLite with the same settings, Thompson sampling
on two counts per arm, one commit per request.
"""

import argparse
import asyncio
import json
import os
import random
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

PLAIN = """
import random, sqlite3, threading, uuid
from fastapi import FastAPI
from pydantic import BaseModel

app = FastAPI()
db = sqlite3.connect({path!r}, check_same_thread=False, isolation_level=None)
for setting in ("journal_mode = WAL", "synchronous = FULL"):
    db.execute(f"PRAGMA {{setting}}")
db.execute("CREATE TABLE arms (arm INTEGER PRIMARY KEY, ones INTEGER, zeros INTEGER)")
db.execute("CREATE TABLE decisions (id TEXT PRIMARY KEY, arm INTEGER, reward REAL)")
db.executemany("INSERT INTO arms VALUES (?, 0, 0)", [(0,), (1,)])
lock = threading.Lock()

class Given(BaseModel):
    id: str
    reward: float

@app.post("/v1/tests/bench/decide")
def decide():
    with lock:
        rows = db.execute("SELECT arm, ones, zeros FROM arms").fetchall()
        arm = max(rows, key=lambda row: random.betavariate(row[1] + 1, row[2] + 1))[0]
        id = uuid.uuid4().hex
        db.execute("INSERT INTO decisions VALUES (?, ?, NULL)", (id, arm))
    return {{"id": id, "arm": arm}}

@app.post("/v1/tests/bench/reward")
def reward(given: Given):
    with lock:
        db.execute("BEGIN IMMEDIATE")
        (arm,) = db.execute("SELECT arm FROM decisions WHERE id = ?", (given.id,)).fetchone()
        db.execute("UPDATE decisions SET reward = ? WHERE id = ?", (given.reward, given.id))
        column = "ones" if given.reward else "zeros"
        db.execute(f"UPDATE arms SET {{column}} = {{column}} + 1 WHERE arm = ?", (arm,))
        db.execute("COMMIT")
    return {{"id": given.id}}
"""


class Client(asyncio.Protocol):
    """One connection that decides and rewards, again and again."""

    def __init__(self, key: str, token: str, rng: random.Random, latencies: list[float]) -> None:
        head = f"Host: x\r\nAuthorization: Bearer {token}\r\nContent-Type: application/json\r\n"
        self._decide = (
            f"POST /v1/tests/{key}/decide HTTP/1.1\r\n{head}Content-Length: 2\r\n\r\n{{}}".encode()
        )
        self._reward = f"POST /v1/tests/{key}/reward HTTP/1.1\r\n{head}Content-Length: ".encode()
        self._rng, self._latencies = rng, latencies
        self._buffer, self._deciding = b"", True
        self.pairs, self.errors = 0, []

    def connection_made(self, transport) -> None:
        self._transport = transport
        self._send(self._decide)

    def _send(self, data: bytes) -> None:
        self._sent = time.perf_counter()
        self._transport.write(data)

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        head, found, body = self._buffer.partition(b"\r\n\r\n")
        if not found:
            return
        start = head.lower().index(b"content-length: ") + 16
        if len(body) < int(head[start:].split(b"\r", 1)[0]):
            return
        self._latencies.append(time.perf_counter() - self._sent)
        self._buffer = b""
        if not head.startswith(b"HTTP/1.1 200"):
            self.errors.append(head[:20] + body[:200])
        if self._deciding and not self.errors:
            made = json.loads(body)
            one = self._rng.random() < (0.1, 0.12)[made["arm"]]
            given = b'{"id":"%s","reward":%d}' % (made["id"].encode(), one)
            self._send(self._reward + b"%d\r\n\r\n" % len(given) + given)
            self._deciding = False
        else:
            self.pairs += 1
            self._deciding = True
            self._send(self._decide)


def cpu_of(process: subprocess.Popen) -> float:
    """Seconds that a process has computed, or NaN where /proc does not say."""
    try:
        fields = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return float("nan")
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


async def load(
    process: subprocess.Popen, port: int, token: str, given: argparse.Namespace
) -> dict[str, float]:
    """Plays for some seconds, and returns what was measured."""
    clients, seconds = given.clients, given.seconds
    loop, rng, latencies = asyncio.get_running_loop(), random.Random(0), []
    made = [
        await loop.create_connection(lambda: Client("bench", token, rng, latencies), "127.0.0.1", port)
        for _ in range(clients)
    ]
    await asyncio.sleep(1)  # connections and caches are warm
    latencies.clear()
    before, started = sum(client.pairs for _, client in made), time.perf_counter()
    cpu, service = time.process_time(), cpu_of(process)
    await asyncio.sleep(seconds)
    took = time.perf_counter() - started
    pairs = sum(client.pairs for _, client in made) - before
    found = sorted(latencies)
    for transport, _ in made:
        transport.abort()
    errors = [error for _, client in made for error in client.errors]
    if errors:
        raise SystemExit(f"{len(errors)} errors, the first: {errors[0]!r}")
    return {
        "pairs_per_second": round(pairs / took),
        "p50_ms": round(1e3 * found[len(found) // 2], 2),
        "p99_ms": round(1e3 * found[int(0.99 * len(found))], 2),
        "clients_us_per_request": round(1e6 * (time.process_time() - cpu) / max(2 * pairs, 1)),
        "service_us_per_request": round(1e6 * (cpu_of(process) - service) / max(2 * pairs, 1)),
    }


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


def request(port: int, token: str, path: str, body: bytes | None = None, kind: str = "json") -> dict:
    headers = {"Authorization": f"Bearer {token}", "Content-Type": f"application/{kind}"}
    asked = urllib.request.Request(f"http://127.0.0.1:{port}{path}", body, headers)
    with urllib.request.urlopen(asked, timeout=10) as answer:
        return json.load(answer)


def wait_until_open(port: int) -> None:
    for _ in range(200):
        with socket.socket() as tried:
            if tried.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.1)
    raise SystemExit("the service did not start")


def start_service(db: str, policy: Path, port: int, *words: str) -> tuple[subprocess.Popen, str]:
    """`gradband serve` with a running test."""
    gradband = [sys.executable, "-m", "gradband", "serve"]
    told = subprocess.run(
        [*gradband, "token", "--db", db, "--role", "admin"], capture_output=True, check=True
    )
    token = told.stdout.decode().strip()
    process = subprocess.Popen(
        [*gradband, "--db", db, "--port", str(port), *words], stderr=subprocess.DEVNULL
    )
    wait_until_open(port)
    made = request(port, token, "/v1/policies", policy.read_bytes(), "octet-stream")
    spec = {"key": "bench", "policy": made["fingerprint"], "arms": ["red", "blue"], "wait": "1h"}
    request(port, token, "/v1/tests", json.dumps(spec).encode())
    request(port, token, "/v1/tests/bench/start", b"{}")
    return process, token


def start_plain(folder: Path, port: int) -> tuple[subprocess.Popen, str]:
    """The handler written straight down."""
    (folder / "plain.py").write_text(PLAIN.format(path=str(folder / "plain.db")))
    words = ["plain:app", "--app-dir", str(folder), "--port", str(port), "--no-access-log"]
    process = subprocess.Popen([sys.executable, "-m", "uvicorn", *words], stderr=subprocess.DEVNULL)
    wait_until_open(port)
    return process, ""


def measure(process: subprocess.Popen, port: int, token: str, given: argparse.Namespace) -> dict:
    import uvloop

    try:
        return uvloop.run(load(process, port, token, given))
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(30)


def make_policy(path: Path, name: str) -> None:
    """A policy file of two arms, with the parameters that learning starts from."""
    code = (
        "import sys, jax, gradband as gb\nfrom gradband.policies.policy_file import Learned\n"
        "policy = gb.policies.named(sys.argv[2]).bind(2, 10**6)\n"
        "Learned(policy, policy.init(jax.random.key(0)), {}, {}).save(sys.argv[1])\n"
    )
    subprocess.run([sys.executable, "-c", code, str(path), name], check=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--db", help="postgresql://… in place of SQLite; its tables must be empty")
    parser.add_argument("--clients", type=int, default=32, help="connections (32)")
    parser.add_argument("--seconds", type=float, default=8.0, help="per measurement (8)")
    parser.add_argument("--policy", default="softelim", help="name of the policy (softelim)")
    parser.add_argument("--workers", default="1", help="of the service, with PostgreSQL (1)")
    parser.add_argument("--only", choices=("gradband", "plain"), help="one of both")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        make_policy(folder / "policy.safetensors", given.policy)
        print(f"load of the machine before: {os.getloadavg()[0]:.2f}")
        if given.only != "plain":
            port = free_port()
            words = ("--workers", given.workers)
            process, token = start_service(
                given.db or str(folder / "tests.db"), folder / "policy.safetensors", port, *words
            )
            print("gradband serve:", json.dumps(measure(process, port, token, given)))
        if given.only != "gradband":
            port = free_port()
            process, token = start_plain(folder, port)
            print("plain handler: ", json.dumps(measure(process, port, token, given)))


if __name__ == "__main__":
    main()
