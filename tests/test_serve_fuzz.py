"""Whatever is sent, the service answers as its OpenAPI document says: no failure, no silence."""

import contextlib
import json
import random
import socket
import subprocess
import sysconfig
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from serving import Running, new_test

SCHEMATHESIS = Path(sysconfig.get_path("scripts")) / "schemathesis"
PARTS = [
    *(
        b"GET ",
        b"POST ",
        b"/v1/tests/home/decide",
        b"/v1/tests",
        b" HTTP/1.1\r\n",
        b" HTTP/9.9\r\n",
        b"\r\n",
    ),
    *(
        b"Content-Length: -1\r\n",
        b"Content-Length: 99999999999999999999\r\n",
        b"Transfer-Encoding: chunked\r\n",
    ),
    *(
        b"Expect: 100-continue\r\n",
        b"Upgrade: websocket\r\n",
        b"\x00",
        b"\xff\xfe",
        b"%00",
        b"%ff",
        b"..",
        b"//",
    ),
    *(
        b"ffffffff\r\n",
        b"0\r\n\r\n",
        b'{"id": 1e999}',
        b'"\\ud800"',
        b"{" * 50,
        b"[" * 5000,
        b"a" * 9000,
        b"-",
    ),
]

# No schema says which bytes are a policy, or which floor suits the arms; many arms make a body too large.
CONFIG = """
[checks]
positive_data_acceptance.enabled = false
negative_data_rejection.expected-statuses = [400, 401, 403, 404, 405, 406, 413, 415, 422, 429]
"""


@pytest.fixture(scope="module")
def service(tmp_path_factory, files):
    """A service that must not have failed in the end."""
    with Running(tmp_path_factory.mktemp("fuzz") / "tests.db") as found:
        new_test(found, files("softelim"))
        yield found
        assert found.request("GET", "/readyz")[0] == 200
        assert found.request("POST", "/v1/tests/home/decide", {})[0] in (200, 409)
        assert found.stop() == 0
    assert b"traceback" not in found.log.lower()


def check_whole_api(service, *words):
    """Runs schemathesis on every route but the one that streams without end."""
    command = [SCHEMATHESIS, "run", f"http://127.0.0.1:{service.port}/openapi.json", "--no-color", *words]
    command += ["--exclude-path", "/v1/live", "--seed", "1"]
    command += ["--header", f"Authorization: Bearer {service.token}"]
    folder = Path(service.db).parent
    (folder / "schemathesis.toml").write_text(CONFIG)
    ran = subprocess.run(command, capture_output=True, text=True, check=False, cwd=folder)
    assert ran.returncode == 0, ran.stdout + ran.stderr


def test_the_whole_api_is_as_its_document_says(service):
    check_whole_api(service, "--max-examples", "2", "--phases", "coverage,fuzzing")


@pytest.mark.slow
def test_the_whole_api_is_as_its_document_says_at_length(service):
    check_whole_api(service, "--max-examples", "500")


def malformed(rng, token):
    """A request with something wrong, or a valid one by chance."""
    target, body = rng.choice(
        [
            ("POST /v1/tests/home/decide", {"id": f"visitor {rng.random()}"}),
            ("POST /v1/tests/home/reward", {"id": "visitor", "reward": 1}),
            ("POST /ofrep/v1/evaluate/flags/home", {"context": {"targetingKey": "user"}}),
            ("POST /v1/tests", {"key": "x", "arms": ["a", "b", "c", "d"], "policy": "0" * 16}),
            ("GET /v1/tests/home/report?format=csv", None),
            ("PUT /v1/tests/home/policy", {"policy": "0" * 16, "reason": "x"}),
        ]
    )
    data = b"" if body is None else json.dumps(body).encode()
    head = f"{target} HTTP/1.1\r\nAuthorization: Bearer {token}\r\nContent-Type: application/json\r\n"
    sent = bytearray(head.encode() + b"Content-Length: %d\r\nConnection: close\r\n\r\n" % len(data) + data)
    for _ in range(rng.randint(1, 4)):
        place = rng.randrange(len(sent) + 1)
        wrong = rng.randrange(5)
        if wrong == 0:
            sent[place : place + 1] = rng.randbytes(1)
        elif wrong == 1:
            sent[place:place] = rng.choice(PARTS)
        elif wrong == 2:
            del sent[place : place + rng.randint(1, 30)]
        elif wrong == 3:
            del sent[place:]
        else:
            sent[place:place] = rng.randbytes(rng.randint(1, 40))
    return bytes(sent)


def send(port, data, patience):
    """What is answered to some bytes. If they are no whole request, the connection ends after a while."""
    answer = b""
    with socket.create_connection(("127.0.0.1", port), timeout=30) as connection:
        try:
            connection.sendall(data)
            if patience:
                connection.settimeout(patience)
                with contextlib.suppress(TimeoutError):
                    answer = connection.recv(1 << 16)
                connection.settimeout(30)
            connection.shutdown(socket.SHUT_WR)
            while chunk := connection.recv(1 << 16):  # a service that hangs would be a timeout
                answer += chunk
        except ConnectionError:
            pass
    return answer


def check_malformed(service, count, seed):
    """Sends requests, each on a connection of its own, and returns the statuses of the answers."""
    rng, statuses = random.Random(seed), set()
    for number in range(count):
        data = malformed(rng, service.token)
        answer = send(service.port, data, patience=0 if number % 4 else 0.02)
        if answer:
            status = answer.split(b" ", 2)[1]
            assert status[:1] in b"1234", (data, answer)
            statuses.add(status)
    return statuses


def test_malformed_requests_are_refused(service):
    assert {b"400", b"401", b"404", b"422"} <= check_malformed(service, 1500, seed=1)


@pytest.mark.slow
def test_a_million_malformed_requests_are_refused(service):
    with ThreadPoolExecutor(8) as threads:
        jobs = [threads.submit(check_malformed, service, 125_000, seed) for seed in range(8)]
        for job in jobs:
            job.result()
