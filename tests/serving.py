"""Runs services and databases for tests of `gradband serve`."""

import contextlib
import http.client
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import pytest

from gradband.serve.store import open_store
from gradband.serve.tokens import create_token

ROOT = Path(__file__).parents[1]
LABELS = ["red", "blue", "green", "grey"]  # of policies with four arms


def free_port():
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


def gradband(*words, **environ):
    """Runs a command, and returns what it printed."""
    command = [sys.executable, "-m", "gradband", *map(str, words)]
    ran = subprocess.run(
        command, capture_output=True, text=True, check=False, env=os.environ | environ, cwd=ROOT
    )
    assert ran.returncode == 0, ran.stderr
    return ran.stdout.strip()


def new_token(db, role):
    """A token, and the tables if there are none."""
    store = open_store(str(db))
    store.migrate()
    try:
        return create_token(store, role)
    finally:
        store.close()


class Running:
    """A service in a process of its own, on a port that it keeps when it is started again."""

    def __init__(self, db, *words, token=None):
        self.db, self.words, self.port = str(db), words, free_port()
        self.token = token or new_token(self.db, "admin")
        self.log = bytearray()  # bytes would be copied with every line
        self.start()

    def start(self):
        command = [sys.executable, "-m", "gradband", "serve", "--db", self.db, "--port", str(self.port)]
        self.process = subprocess.Popen([*command, *self.words], stderr=subprocess.PIPE, cwd=ROOT)
        # Somebody must read, or the service would wait for them.
        self._reader = threading.Thread(target=self._read, args=(self.process.stderr,))
        self._reader.start()
        self.wait_until_ready()

    def _read(self, stream):
        with stream:
            for line in stream:
                self.log += line

    def wait_until_ready(self):
        for _ in range(600):
            if self.process.poll() is not None:
                self._reader.join()
                raise AssertionError(self.log.decode())
            with contextlib.suppress(OSError, http.client.HTTPException):
                if self.request("GET", "/readyz")[0] == 200:
                    return
            time.sleep(0.05)
        raise AssertionError("the service did not start")

    def request(self, method, path, body=None, token=None, headers=None):
        """Status and answer of a request on a new connection."""
        with contextlib.closing(
            http.client.HTTPConnection("127.0.0.1", self.port, timeout=20)
        ) as connection:
            return ask(connection, method, path, body, token or self.token, headers)

    def kill(self):
        self.process.kill()
        self._end()

    def stop(self):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        self._end()
        return self.process.returncode

    def _end(self):
        self.process.wait(30)
        self._reader.join()

    def __enter__(self):
        return self

    def __exit__(self, *error):
        if self.process.poll() is None:
            self.kill()


def ask(connection, method, path, body=None, token="", headers=None):
    """Status and answer of a request, with JSON or bytes as its body."""
    kind = "octet-stream" if isinstance(body, bytes) else "json"
    data = body if isinstance(body, bytes | None) else json.dumps(body)
    sent = {"Authorization": f"Bearer {token}", "Content-Type": f"application/{kind}"} | (headers or {})
    connection.request(method, path, data, sent)
    answer = connection.getresponse()
    text = answer.read()
    is_json = answer.headers.get("content-type", "") == "application/json"
    return answer.status, json.loads(text) if is_json and text else text


def new_test(service, file, key="home", **settings):
    """Uploads a policy and starts a test of it."""
    status, made = service.request("POST", "/v1/policies", Path(file).read_bytes())
    assert status == 201, made
    spec = {"key": key, "policy": made["fingerprint"], "arms": LABELS, "seed": 5} | settings
    status, told = service.request("POST", "/v1/tests", spec)
    assert status == 201, told
    assert service.request("POST", f"/v1/tests/{key}/start")[0] == 200
    return made["fingerprint"]


class Client:
    """Decides and rewards until it is stopped, and repeats what was not answered."""

    def __init__(self, service, name, most=10**9, key="home"):
        self.service, self.name, self.most, self.key = service, name, most, key
        self.decided, self.rewarded, self.wrong = {}, {}, []
        self.retries = 0
        self._stopping = threading.Event()
        self._connection = None
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def stop(self):
        self._stopping.set()
        self.join()

    def join(self):
        self._thread.join(120)
        assert not self._thread.is_alive(), "a client hangs"

    def _run(self):
        try:
            self._play()
        finally:
            if self._connection is not None:
                self._connection.close()

    def _play(self):
        for number in range(self.most):
            if self._stopping.is_set():
                return
            id = f"{self.name}-{number}"
            if (made := self._insist("decide", {"id": id})) is None:
                return
            self.decided[id] = made["arm"]
            value = (number * 7919 + made["arm"]) % 3 == 0
            if self._insist("reward", {"id": id, "reward": int(value)}) is None:
                return
            self.rewarded[id] = int(value)

    def _insist(self, what, body):
        """The answer, after as many attempts as it takes; or None if the service stays away."""
        for _ in range(2000):
            try:
                if self._connection is None:
                    self._connection = http.client.HTTPConnection(
                        "127.0.0.1", self.service.port, timeout=20
                    )
                path = f"/v1/tests/{self.key}/{what}"
                status, told = ask(self._connection, "POST", path, body, self.service.token)
            except (OSError, http.client.HTTPException):
                self._connection.close()
                self._connection, status, told = None, 0, {}
            if status == 200:
                return told
            if status == 409 and what == "reward":  # an attempt before was kept, but not answered
                return body
            if status not in (0, 503):
                self.wrong.append((what, body, status, told))
                return None
            self.retries += 1
            time.sleep(0.02)
        self.wrong.append((what, body, "no answer"))
        return None


def check_nothing_lost(events, clients):
    """Every answered decision and reward is there once, as it was answered."""
    selects = [event for event in events if event["op"] == "select"]
    updates = [event for event in events if event["op"] == "update"]
    made = {event["id"]: event["arm"] for event in selects}
    got = {event["id"]: event["reward"] for event in updates}
    assert len(made) == len(selects)
    assert len(got) == len(updates)
    for client in clients:
        assert client.wrong == []
        assert client.decided.items() <= made.items()
        assert client.rewarded.items() <= got.items()
    assert all(id in made for id in got)


def read_events(db, key="home"):
    """All events of a test, from the database."""
    store = open_store(str(db))
    rows = store.execute(
        "SELECT body FROM events JOIN tests ON test = id WHERE key = ? ORDER BY seq", (key,)
    )
    store.close()
    return [json.loads(body) for (body,) in rows]


class Postgres:
    """A PostgreSQL server of the test's own, in a temporary folder, with its socket there."""

    def __init__(self, bin):
        self.bin = bin
        # Its crashes are those of processes, which lose nothing in memory, and recover there in no time.
        memory = Path("/dev/shm")
        roomy = memory.is_dir() and shutil.disk_usage(memory).free > 500 << 20
        self.folder = Path(tempfile.mkdtemp(prefix="gradband-pg-", dir=memory if roomy else None))
        self._user = (
            {"user": "postgres", "group": "postgres", "extra_groups": []} if os.getuid() == 0 else {}
        )
        if self._user:
            shutil.chown(self.folder, "postgres", "postgres")
        words = [
            "-U",
            "gradband",
            "-A",
            "trust",
            "-E",
            "UTF8",
            "--locale=C",
            "--no-sync",
            "--no-instructions",
        ]
        command = [bin / "initdb", "-D", self.folder / "data", *words]
        subprocess.run(command, check=True, capture_output=True, cwd=self.folder, **self._user)
        self.databases = 0
        self.start()

    def start(self):
        settings = {
            "listen_addresses": "",
            "unix_socket_directories": str(self.folder),
            "shared_buffers": "16MB",
        }
        words = [word for name, value in settings.items() for word in ("-c", f"{name}={value}")]
        command = [self.bin / "postgres", "-D", self.folder / "data", *words]
        for _ in range(20):
            with (self.folder / "log").open("ab") as log:
                self.process = subprocess.Popen(
                    command, stdout=log, stderr=log, cwd=self.folder, start_new_session=True, **self._user
                )
            if self._answers():
                return
        raise AssertionError((self.folder / "log").read_text())

    def _answers(self):
        import psycopg

        for _ in range(300):
            if self.process.poll() is not None:
                time.sleep(0.1)  # processes of the one before may still be there
                return False
            with contextlib.suppress(psycopg.Error):
                psycopg.connect(self.address("postgres")).close()
                return True
            time.sleep(0.05)
        return False

    def address(self, name):
        return f"postgresql://gradband@/{name}?host={self.folder}"

    def new(self):
        """The address of a new database."""
        import psycopg

        self.databases += 1
        name = f"tests{self.databases}"
        with psycopg.connect(self.address("postgres"), autocommit=True) as db:
            db.execute(f"CREATE DATABASE {name}")
        return self.address(name)

    def kill(self):
        """Ends all of its processes at once, as a power failure would."""
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split()
        self.process.kill()
        for child in children:
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(child), signal.SIGKILL)
        self.process.wait()

    def close(self):
        self.kill()
        shutil.rmtree(self.folder, ignore_errors=True)


def start_postgres():
    """A server, or a skipped test where there is none to start."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    if not found:
        pytest.skip("PostgreSQL is not installed: apt-get install postgresql")
    try:
        import psycopg
    except ImportError:
        pytest.skip("psycopg is not installed: pip install 'gradband[serve]'")
    assert psycopg
    return Postgres(found[-1].parent)
