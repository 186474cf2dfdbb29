"""The service as processes: workers on PostgreSQL, OpenFeature's client, the end, backups, commands."""

import http.client
import json
import os
import re
import signal
import sqlite3
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from openfeature import api as openfeature
from openfeature.contrib.provider.ofrep import OFREPProvider
from openfeature.evaluation_context import EvaluationContext
from serving import (
    LABELS,
    Client,
    Running,
    ask,
    check_nothing_lost,
    gradband,
    new_test,
    new_token,
    read_events,
)

import gradband as gb
from gradband.cli import main
from gradband.serve.store import open_store
from gradband.serve.tokens import find_token, read_tokens


def replay(events, file):
    """Plays the events again with one player, which must decide the same."""
    now = [0.0]
    player = gb.Player(file, seed=5, arms=LABELS, clock=lambda: now[0])
    for event in events:
        now[0] = event["t"]
        if event["op"] == "select":
            made = player.select(event["id"])
            assert (int(made), made.propensity) == (event["arm"], event["p"])
        else:
            player.update(event["id"], event["reward"])
    return player


def workers_of(service):
    """The process ids of the workers."""
    pid = service.process.pid
    children = map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split())
    return [child for child in children if "spawn_main" in Path(f"/proc/{child}/cmdline").read_text()]


def test_four_workers_on_postgres_play_as_one_player(postgres, files):
    db = postgres.new()
    with Running(db, "--workers", "4") as service:
        new_test(service, files("softelim"))
        clients = [Client(service, f"client-{number}", most=50) for number in range(12)]
        while sum(len(client.rewarded) for client in clients) < 100:
            time.sleep(0.02)
        os.kill(workers_of(service)[0], signal.SIGKILL)  # it will be replaced
        for client in clients:
            client.join()
        shown = service.request("GET", "/v1/tests/home")[1]
        weights = service.request("GET", "/v1/tests/home/weights")[1]["weights"]
        metrics = service.request("GET", "/metrics")[1].decode()
        deadline = time.monotonic() + 30
        while len(workers_of(service)) < 4:
            assert time.monotonic() < deadline
            time.sleep(0.05)
        assert service.stop() == 0
    assert b"a worker died" in service.log
    events = read_events(db)
    check_nothing_lost(events, clients)
    assert (shown["decisions"], shown["rewards"], shown["waiting"]) == (600, 600, 0)
    (counted,) = re.findall(r'gradband_events_total{op="select",test="home"} (.*)', metrics)
    assert 590 <= float(counted) <= 600  # of all workers; one may have died before it counted
    assert replay(events, files("softelim")).weights() == weights
    selects = [event for event in events if event["op"] == "select"]
    p = np.array([event["ps"] for event in selects])
    pulled = np.eye(4)[[event["arm"] for event in selects]]
    free = p.max(1) < 1
    z = (pulled - p)[free].sum(0) / np.sqrt((p * (1 - p))[free].sum(0))
    assert np.all(np.abs(z) < 5)


@pytest.fixture(scope="module")
def service(files, tmp_path_factory):
    """A service that its tests share, with two tests."""
    with Running(tmp_path_factory.mktemp("service") / "tests.db") as found:
        for key in ("home", "cart"):
            new_test(found, files("softelim"), key)
        yield found


def test_an_openfeature_client_gets_decisions(service):
    token = new_token(service.db, "decide")
    provider = OFREPProvider(
        f"http://127.0.0.1:{service.port}",
        headers_factory=lambda: {"Authorization": f"Bearer {token}"},
        timeout=20,
    )
    openfeature.set_provider(provider)
    try:
        client = openfeature.get_client()
        context = EvaluationContext("user-17", {"country": "CA"})
        found = client.get_string_details("home", "none", context)
        assert (found.error_code, found.reason) == (None, "SPLIT")
        assert found.value == found.variant in LABELS
        assert 0 < found.flag_metadata["propensity"] <= 1
        body = {"id": found.flag_metadata["decisionId"], "reward": 1}
        assert service.request("POST", "/v1/tests/home/reward", body, token)[0] == 200
        assert client.get_string_value("home", "none", context) == found.value  # the unit keeps its arm
        codes = {
            "other": client.get_string_details("other", "none", context).error_code,
            "no key": client.get_string_details("home", "none", EvaluationContext()).error_code,
            "type": client.get_boolean_details("home", False, context).error_code,
        }
        assert codes == {
            "other": "FLAG_NOT_FOUND",
            "no key": "TARGETING_KEY_MISSING",
            "type": "TYPE_MISMATCH",
        }
        assert service.request("POST", "/v1/tests/home/pause")[0] == 200
        paused = client.get_string_details("home", "none", context)
        assert (paused.value, paused.reason) == ("none", "DISABLED")
        assert service.request("POST", "/v1/tests/home/start")[0] == 200
        token = "wrong"
        assert client.get_string_details("home", "none", context).error_code == "GENERAL"
    finally:
        provider.session.close()
        openfeature.clear_providers()


def test_all_flags_at_once_have_a_tag(service):
    path, body = "/ofrep/v1/evaluate/flags", {"context": {"targetingKey": "user"}}
    connection = http.client.HTTPConnection("127.0.0.1", service.port)
    headers = {"Authorization": f"Bearer {service.token}", "Content-Type": "application/json"}
    connection.request("POST", path, json.dumps(body), headers)
    answer = connection.getresponse()
    flags = json.load(answer)["flags"]
    tag = answer.headers["etag"]
    assert [flag["key"] for flag in flags] == ["cart", "home"]
    assert ask(connection, "POST", path, body, service.token, {"If-None-Match": tag}) == (304, b"")
    connection.close()
    assert service.request("POST", path, {"context": {}})[1]["errorCode"] == "TARGETING_KEY_MISSING"
    assert service.request("POST", path, {})[1]["errorCode"] == "INVALID_CONTEXT"
    told = service.request("POST", path, b"{", headers={"Content-Type": "application/json"})
    assert (told[0], told[1]["errorCode"]) == (400, "PARSE_ERROR")


def test_live_updates_tell_what_changed(files, tmp_path):
    with Running(tmp_path / "tests.db") as service:
        new_test(service, files("softelim"))
        connection = http.client.HTTPConnection("127.0.0.1", service.port, timeout=20)
        connection.request("GET", "/v1/live", headers={"Authorization": f"Bearer {service.token}"})
        stream = connection.getresponse()
        assert stream.headers["content-type"].startswith("text/event-stream")
        assert stream.readline() == b"retry: 2000\n"
        service.request("POST", "/v1/tests/home/decide", {})
        while not (line := stream.readline()).startswith(b"data: "):
            assert line.strip() in (b"", b"event: tests")
        assert json.loads(line[6:]) == {"home": 3}
        ending = threading.Thread(target=service.stop)
        ending.start()
        assert b"data" not in stream.read()  # the stream ends with the service
        ending.join()
        connection.close()
    assert service.process.returncode == 0


def test_the_end_waits_for_requests_that_are_being_answered(files, tmp_path):
    with Running(tmp_path / "tests.db") as service:
        new_test(service, files("softelim"))
        clients = [Client(service, f"client-{number}") for number in range(8)]
        while not all(client.rewarded for client in clients):
            time.sleep(0.02)
        connection = http.client.HTTPConnection("127.0.0.1", service.port, timeout=20)
        connection.putrequest("POST", "/v1/tests/home/decide")
        body = json.dumps({"id": "late"}).encode()
        for name, value in {
            "Authorization": f"Bearer {service.token}",
            "Content-Length": len(body),
        }.items():
            connection.putheader(name, value)
        connection.putheader("Content-Type", "application/json")
        connection.endheaders()
        time.sleep(0.3)
        ending = threading.Thread(target=service.stop)
        ending.start()
        time.sleep(0.3)
        connection.send(body)  # begun before the end, finished after it
        answer = connection.getresponse()
        assert (answer.status, json.load(answer)["id"]) == (200, "late")
        connection.close()
        ending.join()
        for client in clients:
            client._stopping.set()
        assert service.process.returncode == 0
        service.start()
        for client in clients:
            client.join()
        assert service.stop() == 0
    check_nothing_lost(read_events(tmp_path / "tests.db"), clients)


def test_a_backup_of_a_service_in_use_can_be_served(files, tmp_path):
    with Running(tmp_path / "tests.db") as service:
        new_test(service, files("softelim"))
        client = Client(service, "client")
        while len(client.rewarded) < 20:
            time.sleep(0.02)
        kept = dict(client.rewarded)
        gradband("serve", "backup", "--db", service.db, "--to", tmp_path / "copy.db")
        client.stop()
    assert sorted(path.name for path in tmp_path.glob("copy*")) == ["copy.db"]
    with Running(tmp_path / "copy.db", token=service.token) as restored:
        shown = restored.request("GET", "/v1/tests/home")[1]
        assert shown["rewards"] >= len(kept)
        assert restored.request("POST", "/v1/tests/home/decide", {"id": "new"})[0] == 200
        assert restored.stop() == 0
    events = read_events(tmp_path / "copy.db")
    assert kept.items() <= {e["id"]: e["reward"] for e in events if e["op"] == "update"}.items()
    replay([event for event in events if event["id"] != "new"], files("softelim"))


def test_secrets_are_not_logged(service):
    service.request("GET", "/v1/tests", token="gbt_" + "1" * 12 + "_" + "2" * 64)
    service.request("GET", f"/v1/tests?token={service.token}")
    service.request("POST", "/v1/tests/home/decide", b"{", headers={"Content-Type": "application/json"})
    assert service.stop() == 0
    lines = [json.loads(line) for line in service.log.splitlines()]
    assert {"started", "stopped"} <= {line["message"] for line in lines}
    assert all({"time", "level", "message"} <= set(line) for line in lines)
    secret = service.token.rpartition("_")[2].encode()
    assert secret not in service.log
    assert b"2" * 64 not in service.log
    service.start()  # for the others


def run(*words):
    return main.run(["serve", *map(str, words)])


def test_tokens_on_the_command_line(tmp_path, capsys, monkeypatch):
    db = tmp_path / "tests.db"
    run("token", "--db", db, "--role", "read", "--name", "the board")
    out, err = capsys.readouterr()
    assert "cannot be shown again" in err
    store = open_store(str(db))
    token = find_token(read_tokens(store), out.strip())
    assert (token.role, token.name) == ("read", "the board")
    monkeypatch.setenv("GRADBAND_DB", str(db))
    run("tokens")
    listed = capsys.readouterr().out
    assert "the board" in listed
    assert token.hash not in listed
    run("revoke", token.id)
    run("tokens")
    assert "revoked" in capsys.readouterr().out
    assert find_token(read_tokens(store), out.strip()) is None
    store.close()
    assert db.stat().st_mode & 0o077 == 0


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ((), "needs --db"),
        (("--db", "mysql://x"), "postgresql://"),
        (("--db", "{}/no/such/folder.db"), "cannot open the database"),
        (("--db", "{}/text.db"), "not a database"),
        (("--db", "{}/new.db", "--workers", "2"), "SQLite takes one worker"),
        (("--db", "{}/new.db", "--host", "256.0.0.1"), "cannot listen"),
        (("token", "--db", "{}/new.db", "--role", "root"), "unknown role"),
        (("revoke", "--db", "{}/old.db", "x"), "no token"),
        (("revoke", "--db", "{}/new.db", "x"), "there is no database"),
        (("backup", "--db", "{}/old.db", "--to", "{}/text.db"), "exists already"),
    ],
)
def test_wrong_words_are_one_sentence(words, told, tmp_path, monkeypatch):
    monkeypatch.delenv("GRADBAND_DB", raising=False)
    (tmp_path / "text.db").write_text("not a database, but text" * 100)
    open_store(str(tmp_path / "old.db")).close()
    with pytest.raises(gb.InputError, match=told):
        run(*(word.format(tmp_path) for word in words))


def test_a_newer_schema_is_refused(tmp_path):
    store = open_store(str(tmp_path / "tests.db"))
    assert store.migrate() == [1]
    assert store.migrate() == []
    store.execute("INSERT INTO gradband_schema VALUES (99)")
    with pytest.raises(gb.InputError, match="upgrade gradband"):
        store.migrate()
    store.close()


def test_sqlite_waits_for_the_disk(tmp_path):
    store = open_store(str(tmp_path / "tests.db"))
    assert store.one("PRAGMA journal_mode") == ("wal",)
    assert store.one("PRAGMA synchronous") == (2,)  # FULL
    store.close()
    with sqlite3.connect(tmp_path / "tests.db") as db:
        assert db.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    db.close()


def test_postgres_waits_for_the_disk(postgres):
    import psycopg

    db = postgres.new()
    with psycopg.connect(db, autocommit=True) as admin:
        admin.execute("ALTER ROLE gradband SET synchronous_commit = off")
    store = open_store(db)
    assert store.one("SHOW synchronous_commit") == ("on",)
    assert store.migrate() == [1]
    store.close()
    with psycopg.connect(db, autocommit=True) as admin:
        admin.execute("ALTER ROLE gradband RESET synchronous_commit")
