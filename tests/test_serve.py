"""The service over HTTP: the life of a test, roles, limits, repeated and invalid requests."""

import json
import re
import time
from pathlib import Path

import pytest
from fastapi.testclient import TestClient
from serving import LABELS

import gradband as gb
from gradband.cli import main
from gradband.serve import gate, limits, live, operations, service
from gradband.serve.options import Options
from gradband.serve.server import create_app
from gradband.serve.sqlite import Sqlite
from gradband.serve.store import StoreError, open_store
from gradband.serve.tokens import create_token, read_tokens, revoke_token


class Api:
    """A service in this process, with a token of each role."""

    def __init__(self, db, **options):
        self.db = db
        store = open_store(str(db))
        store.migrate()
        self.tokens = {role: create_token(store, role) for role in ("decide", "read", "admin")}
        store.close()
        self.http = TestClient(create_app(Options(str(db), **options)), raise_server_exceptions=False)

    def __enter__(self):
        self.http.__enter__()
        return self

    def __exit__(self, *error):
        self.http.__exit__(*error)

    def __call__(self, method, path, body=None, role="admin", **more):
        headers = {"Authorization": f"Bearer {self.tokens[role]}"} if role else {}
        headers |= more.pop("headers", {})
        if isinstance(body, bytes):
            return self.http.request(method, path, content=body, headers=headers)
        return self.http.request(method, path, json=body, headers=headers, **more)

    def ok(self, *words, **more):
        """The answer to a request that must succeed."""
        answer = self(*words, **more)
        assert answer.status_code in (200, 201), answer.text
        return answer.json()

    def refused(self, status, *words, **more):
        """The sentence of a refusal with this status."""
        answer = self(*words, **more)
        assert answer.status_code == status, answer.text
        return answer.json()["error"]

    def upload(self, file):
        return self.ok("POST", "/v1/policies", Path(file).read_bytes())["fingerprint"]

    def new(self, file, key="home", **settings):
        spec = {"key": key, "policy": self.upload(file), "arms": LABELS, "seed": 5} | settings
        self.ok("POST", "/v1/tests", spec)
        self.ok("POST", f"/v1/tests/{key}/start")


@pytest.fixture
def api(tmp_path):
    with Api(tmp_path / "tests.db") as found:
        yield found


@pytest.fixture
def home(api, files):
    """A service with a running test."""
    api.new(files("softelim"))
    return api


@pytest.fixture(scope="module")
def shared(tmp_path_factory, files):
    """The same, for tests that change nothing."""
    with Api(tmp_path_factory.mktemp("shared") / "tests.db") as found:
        found.new(files("softelim"))
        decide(found, id="visitor")
        yield found


def decide(api, key="home", **body):
    return api.ok("POST", f"/v1/tests/{key}/decide", body, role="decide")


def reward(api, id, value=1, key="home"):
    return api.ok("POST", f"/v1/tests/{key}/reward", {"id": id, "reward": value}, role="decide")


def test_a_whole_life(api, files):
    first, second = api.upload(files("softelim")), api.upload(files("ucb1"))
    assert {entry["name"] for entry in api.ok("GET", "/v1/policies", role="read")["policies"]} == {
        "softelim",
        "ucb1",
    }
    spec = {"key": "home", "policy": first, "arms": LABELS, "wait": "24h", "floor": 0.05}
    assert api.ok("POST", "/v1/tests", spec)["status"] == "created"
    assert "created" in api.refused(409, "POST", "/v1/tests/home/decide", {}, role="decide")
    api.ok("POST", "/v1/tests/home/start")
    for number in range(12):
        made = decide(api, id=f"visitor {number}", unit=f"user {number}")
        assert made["label"] == LABELS[made["arm"]]
        reward(api, made["id"], number % 2)
    api.ok("POST", "/v1/tests/home/arms", {"label": "gold"})
    api.ok("POST", "/v1/tests/home/arms/grey/retire", {"reason": "ugly"})
    told = api.ok("PUT", "/v1/tests/home/policy", {"policy": second, "reason": "to compare"})
    assert told["policy"] == second
    weights = api.ok("GET", "/v1/tests/home/weights", role="read")["weights"]
    assert set(weights) == {"red", "blue", "green", "gold"}
    assert sum(weights.values()) == pytest.approx(1)
    assert min(weights.values()) >= 0.05 - 1e-12
    api.ok("POST", "/v1/tests/home/pause", {"reason": "sale"})
    assert "paused" in api.refused(409, "POST", "/v1/tests/home/decide", {}, role="decide")
    api.ok("POST", "/v1/tests/home/start")
    api.ok("POST", "/v1/tests/home/end", {"reason": "done"})
    assert "cannot start" in api.refused(409, "POST", "/v1/tests/home/start")
    shown = api.ok("GET", "/v1/tests/home", role="read")
    steps = [(change["action"], change["detail"], change["reason"]) for change in shown["history"]]
    assert steps == [
        ("create", "", ""),
        ("start", "", ""),
        ("add", "gold", ""),
        ("retire", "grey", "ugly"),
        ("swap", second, "to compare"),
        ("pause", "", "sale"),
        ("start", "", ""),
        ("end", "", "done"),
    ]
    assert [arm["label"] for arm in shown["arms"]] == [*LABELS, "gold"]
    assert [arm["label"] for arm in shown["arms"] if arm["retired"]] == ["grey"]
    assert (shown["decisions"], shown["rewards"], shown["waiting"]) == (12, 12, 0)
    (listed,) = api.ok("GET", "/v1/tests", role="read")["tests"]
    assert {name: listed[name] for name in ("key", "version", "settings")} == {
        name: shown[name] for name in ("key", "version", "settings")
    }


def test_decisions_are_those_of_a_player(home, files):
    player = gb.Player(files("softelim"), seed=5, arms=LABELS)
    for number in range(40):
        made, alone = decide(home), player.select()
        assert (made["arm"], made["id"], made["propensity"]) == (alone, alone.id, alone.propensity)
        reward(home, made["id"], int(number % 3 == 0))
        player.update(alone, number % 3 == 0)
    assert home.ok("GET", "/v1/tests/home/weights", role="read")["weights"] == player.weights()


def test_a_repeated_request_changes_nothing(home):
    first = decide(home, id="visitor")
    assert decide(home, id="visitor") == first | {"returning": True}
    reward(home, "visitor")
    told = home.refused(409, "POST", "/v1/tests/home/reward", {"id": "visitor", "reward": 1}, role="decide")
    assert "has its reward already" in told
    assert home.refused(409, "POST", "/v1/tests/home/decide", {"id": "visitor"}, role="decide")
    home.ok("POST", "/v1/tests/home/arms", {"label": "gold"})
    version = home.ok("GET", "/v1/tests/home")["version"]
    home.ok("POST", "/v1/tests/home/arms", {"label": "gold"})
    home.ok("POST", "/v1/tests/home/start")
    shown = home.ok("GET", "/v1/tests/home")
    assert (shown["version"], shown["decisions"]) == (version, 1)


def test_a_unit_keeps_its_arm(home):
    first = decide(home, unit="user")
    reward(home, first["id"])
    for _ in range(20):
        decide(home)
    assert decide(home, unit="user") == first | {"returning": True}


def test_silence_gets_the_default_by_a_timer(api, files):
    api.new(files("softelim"), wait=0.2)
    made = decide(api)
    deadline = time.monotonic() + 10
    while api.ok("GET", "/v1/tests/home")["waiting"]:
        assert time.monotonic() < deadline
        time.sleep(0.1)
    assert reward(api, made["id"])["late"]
    assert api.refused(409, "POST", "/v1/tests/home/reward", {"id": made["id"], "reward": 1}, role="decide")


def test_a_restart_resumes_from_events_and_snapshots(tmp_path, files, monkeypatch):
    monkeypatch.setattr(live, "SNAPSHOT_AFTER", 30)
    player = gb.Player(files("softelim"), seed=5, arms=LABELS)
    for session in range(4):
        with Api(tmp_path / "tests.db") as api:
            if session == 0:
                api.new(files("softelim"))
            for number in range(12):
                made, alone = decide(api), player.select()
                assert (made["arm"], made["propensity"]) == (alone, alone.propensity)
                reward(api, made["id"], number % 2)
                player.update(alone, number % 2)
    store = Sqlite(tmp_path / "tests.db")
    ((seq,),) = store.execute("SELECT seq FROM snapshots")
    store.close()
    assert 30 <= seq < 4 * 24 + 2


ROUTES = {
    ("GET", "/v1/tests"): "read",
    ("POST", "/v1/tests"): "admin",
    ("GET", "/v1/tests/home"): "read",
    ("POST", "/v1/tests/home/start"): "admin",
    ("POST", "/v1/tests/home/pause"): "admin",
    ("POST", "/v1/tests/home/end"): "admin",
    ("POST", "/v1/tests/home/arms"): "admin",
    ("POST", "/v1/tests/home/arms/red/retire"): "admin",
    ("PUT", "/v1/tests/home/policy"): "admin",
    ("GET", "/v1/tests/home/weights"): "read",
    ("POST", "/v1/tests/home/weights"): "read",
    ("GET", "/v1/tests/home/report"): "read",
    ("GET", "/v1/policies"): "read",
    ("POST", "/v1/policies"): "admin",
    ("POST", "/v1/tests/home/decide"): "decide",
    ("POST", "/v1/tests/home/reward"): "decide",
    ("POST", "/ofrep/v1/evaluate/flags/home"): "decide",
    ("POST", "/ofrep/v1/evaluate/flags"): "decide",
    ("GET", "/metrics"): "read",
    ("GET", "/v1/live"): "read",
    ("GET", "/v1/me"): "read",
}
OPEN = {("GET", "/healthz"), ("GET", "/readyz")}


def test_every_route_needs_its_role(shared):
    document = shared.ok("GET", "/openapi.json", role="")
    described = {
        (method.upper(), path) for path, methods in document["paths"].items() for method in methods
    }
    named = {(method, re.sub("home", "{key}", path)) for method, path in {*ROUTES, *OPEN}}
    assert {(method, path.replace("red", "{label}")) for method, path in named} == described
    for (method, path), right in ROUTES.items():
        assert shared(method, path, role="").status_code == 401
        for role in {"decide", "read"} - {right}:
            assert shared(method, path, role=role).status_code == 403, (method, path, role)
    for method, path in OPEN:
        assert shared(method, path, role="").status_code == 200


@pytest.mark.parametrize(
    "header",
    ["", "Bearer", "Bearer x", "Basic {}", "Bearer {}x", "{}", "Bearer gbt_" + "0" * 12 + "_" + "0" * 64],
)
def test_a_wrong_token_is_refused(shared, header):
    answer = shared.http.get("/v1/tests", headers={"Authorization": header.format(shared.tokens["admin"])})
    assert answer.status_code == 401
    assert answer.headers["www-authenticate"] == "Bearer"


def test_tokens_are_stored_hashed_and_can_be_revoked(api):
    data = b"".join(path.read_bytes() for path in api.db.parent.glob("tests.db*"))
    store = Sqlite(api.db)
    for text in api.tokens.values():
        _, id, secret = text.split("_")
        assert secret.encode() not in data
        assert read_tokens(store)[id].hash.encode() in data
    revoke_token(store, api.tokens["read"].split("_")[1])
    new = create_token(store, "read", "another")
    store.close()
    deadline = time.monotonic() + 10
    while api("GET", "/v1/tests", role="read").status_code == 200:
        assert time.monotonic() < deadline
        time.sleep(0.1)
    assert api.http.get("/v1/tests", headers={"Authorization": f"Bearer {new}"}).status_code == 200


def test_requests_have_a_rate(tmp_path):
    with Api(tmp_path / "tests.db", rate=2.0) as api:
        answers = [api("GET", "/v1/tests") for _ in range(8)]
        assert [answer.status_code for answer in answers][:4] == [200] * 4
        assert answers[-1].status_code == 429
        assert int(answers[-1].headers["retry-after"]) >= 1
        assert (
            api("GET", "/v1/tests", role="read").status_code == 200
        )  # another token has a rate of its own


def test_strangers_have_a_rate(tmp_path, monkeypatch):
    monkeypatch.setattr(service, "STRANGERS", 2.0)
    with Api(tmp_path / "tests.db") as api:
        answers = [api("GET", "/v1/tests", role="").status_code for _ in range(8)]
        assert answers[0] == 401
        assert answers[-1] == 429
        assert api("GET", "/v1/tests").status_code == 200


def test_bodies_have_a_size(shared, monkeypatch):
    large = b'{"id": "' + b"x" * limits.LARGEST_BODY + b'"}'
    kind = {"Content-Type": "application/json"}
    for path in ("/v1/tests/home/reward", "/v1/tests", "/ofrep/v1/evaluate/flags/home"):
        assert shared("POST", path, large, headers=kind).status_code == 413
        chunks = (large[start : start + 1000] for start in range(0, len(large), 1000))
        headers = {"Authorization": f"Bearer {shared.tokens['admin']}", **kind}
        assert shared.http.post(path, content=chunks, headers=headers).status_code == 413
    for path in ("/v1/tests/home/decide", "/v1/tests/home/weights"):  # with features
        assert shared("POST", path, large, headers=kind).status_code == 422
        assert shared("POST", path, large * 16, headers=kind).status_code == 413
    monkeypatch.setattr(gate, "LARGEST_POLICY", 1000)
    assert shared("POST", "/v1/policies", b"x" * 1001).status_code == 413


def test_tests_policies_and_arms_have_a_number(home, files, monkeypatch):
    monkeypatch.setattr(operations, "MOST_TESTS", 1)
    monkeypatch.setattr(operations, "MOST_ARMS", 5)
    monkeypatch.setattr(operations, "MOST_POLICIES", 1)
    policy = home.ok("GET", "/v1/tests/home")["policy"]
    spec = {"key": "other", "policy": policy, "arms": LABELS}
    assert "the most that" in home.refused(409, "POST", "/v1/tests", spec)
    home.ok("POST", "/v1/tests/home/arms", {"label": "gold"})
    assert "5 arms" in home.refused(409, "POST", "/v1/tests/home/arms", {"label": "silver"})
    assert "the most that" in home.refused(409, "POST", "/v1/policies", files("ucb1").read_bytes())


@pytest.mark.parametrize(
    ("path", "body", "told"),
    [
        ("/v1/tests/home/decide", {"id": ""}, "id must be a string of 1 to 256"),
        ("/v1/tests/home/decide", {"id": "x" * 257}, "id must be"),
        ("/v1/tests/home/decide", {"id": 3}, "id must be"),
        ("/v1/tests/home/decide", {"id": "#3"}, "must not start with #"),
        ("/v1/tests/home/decide", {"unit": []}, "unit must be"),
        ("/v1/tests/home/decide", {"units": "x"}, "unknown key 'units'"),
        ("/v1/tests/home/decide", [], "must be an object"),
        ("/v1/tests/home/decide", "x", "must be an object"),
        ("/v1/tests/home/reward", {}, "needs id"),
        ("/v1/tests/home/reward", {"id": "visitor"}, "needs reward"),
        ("/v1/tests/home/reward", {"id": "visitor", "reward": "1"}, "must be a number"),
        ("/v1/tests/home/reward", {"id": "visitor", "reward": True}, "must be a number"),
        ("/v1/tests/home/reward", {"id": "visitor", "reward": 1e300}, "finite"),
        ("/v1/tests/home/reward", {"id": "visitor", "reward": 10**400}, "not JSON"),
        ("/v1/tests/a%20b/decide", {}, "a test's key has"),
        ("/v1/tests/home/arms", {"label": "a/b"}, "label"),
        ("/v1/tests/home/arms", {"label": "a\nb"}, "label"),
        ("/v1/tests/home/arms", {"label": ""}, "label"),
        ("/v1/tests/home/pause", {"reason": "x" * 501}, "reason"),
        ("/v1/tests/home/pause", {"why": "x"}, "why"),
        ("/v1/tests", {"key": "other"}, "policy"),
    ],
)
def test_an_invalid_request_is_refused_and_changes_nothing(shared, path, body, told):
    before = shared.ok("GET", "/v1/tests/home")["version"]
    assert told in shared.refused(422, "POST", path, body)
    assert shared.ok("GET", "/v1/tests/home")["version"] == before


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"arms": ["red"]}, "arms"),
        ({"arms": ["red", "red", "blue", "green"]}, "same label"),
        ({"wait": "soon"}, "24h"),
        ({"wait": -1}, "wait"),
        ({"floor": 0.3}, "floor"),
        ({"control": "gold", "control_share": 0.2}, "gold"),
        ({"control_share": 0.2}, "control"),
        ({"cap": 0}, "cap"),
        ({"policy": "0" * 16}, "there is no policy"),
        ({"policy": "pretrained-linear"}, "export pretrained-linear --to safetensors writes one"),
        ({"policy": "../../etc"}, "policy"),
        ({"seed": -1}, "seed"),
        ({"seed": 2**60}, "seed"),
        ({"key": "a/b"}, "key"),
        ({"key": "a\n"}, "key"),
        ({"default": 1e40}, "default"),
    ],
)
def test_an_invalid_test_is_refused(shared, settings, told):
    policy = shared.ok("GET", "/v1/tests/home")["policy"]
    spec = {"key": "other", "policy": policy, "arms": LABELS} | settings
    assert told in shared.refused(422, "POST", "/v1/tests", spec)
    assert [test["key"] for test in shared.ok("GET", "/v1/tests")["tests"]] == ["home"]


@pytest.mark.parametrize(
    "body", [b"", b"{", b"\xff\xfe", b"[" * 100_000, b'{"id": NaN}', b'{"id": "\\ud800"}', b"null", b"0"]
)
def test_bodies_that_are_no_json_are_refused(shared, body):
    kind = {"Content-Type": "application/json"}
    for path in ("reward", "arms", "retire"):
        assert shared("POST", f"/v1/tests/home/{path}", body, headers=kind).status_code in (404, 413, 422)
    assert shared("POST", "/ofrep/v1/evaluate/flags/home", body, headers=kind).status_code in (400, 413)
    text = {"Content-Type": "text/plain"}
    assert shared("POST", "/v1/tests/home/decide", b"{}", headers=text).status_code == 415


def test_a_policy_file_is_read_and_never_executed(api, files, tmp_path):
    data = files("softelim").read_bytes()
    for wrong in (b"", b"x", data[:-1], data[:100], b"\x80\x04" + data):
        assert api.refused(422, "POST", "/v1/policies", wrong)
    own = tmp_path / "own.py"
    own.write_text((Path(__file__).parents[1] / "gradband/policies/softelim.py").read_text())
    edited = data.replace(b'\\"policy\\": \\"softelim\\"', b'\\"policy\\": \\"mischief\\"')
    assert edited != data
    assert api("POST", "/v1/policies", edited).status_code == 422
    assert api.ok("GET", "/v1/policies")["policies"] == []


def test_what_is_not_there_is_not_found(shared):
    assert shared.refused(404, "GET", "/v1/tests/other")
    assert shared.refused(404, "POST", "/v1/tests/other/decide", {})
    assert shared.refused(404, "POST", "/v1/tests/home/reward", {"id": "nobody", "reward": 1})
    assert shared.refused(404, "POST", "/v1/tests/home/arms/gold/retire")
    assert shared.refused(404, "GET", "/v2/tests")
    assert shared.refused(405, "GET", "/v1/tests/home/decide")
    assert shared.refused(405, "DELETE", "/v1/tests/home")


def test_a_request_that_fails_takes_no_other_with_it(home, monkeypatch):
    original = operations.weights

    def fail(*_):
        raise ZeroDivisionError

    monkeypatch.setattr(operations, "weights", fail)
    assert "its log has the reason" in home.refused(500, "GET", "/v1/tests/home/weights")
    monkeypatch.setattr(operations, "weights", original)
    assert decide(home)["id"] == "#1"
    assert home.ok("GET", "/v1/tests/home/weights")


def test_a_test_that_cannot_be_read_takes_no_other_with_it(home, files):
    home.new(files("softelim"), "broken")
    store = Sqlite(home.db)
    store.execute("UPDATE tests SET version = version + 1 WHERE key = 'broken'")
    store.execute("INSERT INTO events SELECT id, version, 'nonsense' FROM tests WHERE key = 'broken'")
    store.close()
    flags = {"context": {"targetingKey": "user"}}
    assert home("POST", "/v1/tests/broken/decide", {}).status_code == 500
    assert home("POST", "/ofrep/v1/evaluate/flags/home", flags).status_code == 200
    both = home.ok("POST", "/ofrep/v1/evaluate/flags", flags)["flags"]
    assert [(flag["key"], flag.get("errorCode")) for flag in both] == [
        ("broken", "GENERAL"),
        ("home", None),
    ]
    assert decide(home)["label"] in LABELS
    assert home("GET", "/readyz").status_code == 200


def test_a_failed_commit_is_not_answered(home, monkeypatch):
    decide(home, id="first")

    def fail(self):
        self.rollback()
        raise StoreError("disk full")

    with monkeypatch.context() as patch:
        patch.setattr(Sqlite, "commit", fail)
        answer = home("POST", "/v1/tests/home/decide", {"id": "second"})
        assert answer.status_code == 503
        assert answer.headers["retry-after"] == "1"
    assert home.ok("GET", "/v1/tests/home")["decisions"] == 1
    assert not decide(home, id="second")["returning"]


def test_reports_have_three_forms(home):
    for number in range(30):
        reward(home, decide(home)["id"], number % 2)
    found = home.ok("GET", "/v1/tests/home/report", role="read")
    assert sum(arm["pulls"] for arm in found["arms"]) == 30
    assert found["advice"] in ("stop", "go on", "can't tell")
    table = home("GET", "/v1/tests/home/report?format=csv")
    assert table.text.splitlines()[0].startswith("arm,label")
    page = home("GET", "/v1/tests/home/report?format=html")
    assert page.text.startswith("<!DOCTYPE html>")
    assert "sandbox" in page.headers["content-security-policy"]
    reward(home, decide(home)["id"], 1)
    assert sum(arm["pulls"] for arm in home.ok("GET", "/v1/tests/home/report")["arms"]) == 31
    assert home.refused(404, "GET", "/v1/tests/other/report")
    assert home.refused(422, "GET", "/v1/tests/home/report?format=xml")


def test_metrics_count_requests_and_turns(home):
    for _ in range(3):
        decide(home)
    text = home("GET", "/metrics", role="read").text
    assert 'gradband_requests_total{route="decide",status="200"} 3.0' in text
    assert "gradband_turn_seconds_count" in text
    assert "gradband_database_failures_total 0.0" in text
    assert 'gradband_events_total{op="select",test="home"} 3.0' in text


def test_no_other_site_may_call_and_the_board_loads_nothing_from_elsewhere(shared):
    asked = {"Origin": "https://example.org", "Access-Control-Request-Method": "POST"}
    answer = shared.http.options("/v1/tests", headers=asked)
    assert not any(name.startswith("access-control") for name in answer.headers)
    page = shared.http.get("/")
    assert page.status_code == 200
    assert "default-src 'self'" in page.headers["content-security-policy"]
    assert page.headers["x-content-type-options"] == "nosniff"
    assert shared.http.get("/board/..%2f..%2fapi.py").status_code == 404
    assert shared.http.get("/board/nothing.js").status_code == 404


def test_options_are_checked():
    for wrong in ({"port": 70000}, {"workers": 0}, {"workers": 2}, {"rate": 0}, {"grace": 0}):
        with pytest.raises(gb.InputError):
            Options("tests.db", **wrong)
    assert "secret" not in repr(Options("postgresql://me:secret@host/db"))


def test_the_timer_outlives_a_database_that_is_away(home, monkeypatch):
    def fail(*_):
        raise ZeroDivisionError

    monkeypatch.setattr(service, "keys_due", fail)
    time.sleep(1.2)
    assert home("GET", "/healthz").status_code == 200
    assert json.loads(home("GET", "/readyz").text) == {"status": "ok"}


def test_a_test_can_name_a_policy_that_needs_no_file(api, files):
    spec = {"key": "home", "policy": "ts", "arms": ["red", "blue"]}
    made = api.ok("POST", "/v1/tests", spec)
    (policy,) = api.ok("GET", "/v1/policies")["policies"]
    assert (policy["fingerprint"], policy["name"], policy["arms"]) == (made["policy"], "ts", 2)
    api.ok("POST", "/v1/tests/home/start")
    for number in range(6):
        reward(api, decide(api)["id"], number % 2)
    other = api.ok("PUT", "/v1/tests/home/policy", {"policy": "ucb1", "reason": "to compare"})["policy"]
    assert other not in ("ucb1", made["policy"])
    assert api.ok("PUT", "/v1/tests/home/policy", {"policy": "ucb1", "reason": "again"})["policy"] == other
    decide(api)


def test_gradband_report_reads_the_database_in_use(home, capsys):
    for number in range(10):
        reward(home, decide(home)["id"], number % 2)
    main.run(["report", "--db", str(home.db), "home", "--json"])
    found = json.loads(capsys.readouterr().out)
    assert sum(arm["pulls"] for arm in found["arms"]) == 10
    with pytest.raises(gb.InputError, match="no test 'other'"):
        main.run(["report", "--db", str(home.db), "other"])
    nowhere = home.db.parent / "nowhere.db"
    for words in (["report", "--db", str(nowhere), "home"], ["serve", "tokens", "--db", str(nowhere)]):
        with pytest.raises(gb.InputError, match="there is no database"):
            main.run(words)
    assert not nowhere.exists()
