"""The service with policies that decide by contexts: requests, errors, restarts, reports."""

import json

import numpy as np
import pytest
from conftest import assert_z
from serving import LABELS, read_events
from test_serve import Api

import gradband as gb
from gradband.play.player import Player
from gradband.play.settings import Settings
from gradband.policies import LinSoftElim

pytestmark = pytest.mark.brief
ARMS, DIMS = len(LABELS), 3
THETA = np.array([1.0, 0.0, -1.0])


def saved(folder, arms=ARMS, dims=DIMS, **settings):
    """The file of a policy with contexts."""
    policy = LinSoftElim(dims=dims, within=1.0, **settings).bind(arms, 100)
    file = folder / "policy.safetensors"
    gb.Learned(policy, {"a": np.float32(0.8)}, {}, {}).save(file)
    return file


@pytest.fixture
def api(tmp_path):
    with Api(tmp_path / "tests.db") as found:
        found.new(saved(tmp_path), floor=0.05)
        yield found


def decide(api, context, **more):
    body = {"context": context} | more
    return api.ok("POST", "/v1/tests/home/decide", body, role="decide")


def reward(api, id, value):
    api.ok("POST", "/v1/tests/home/reward", {"id": id, "reward": value}, role="decide")


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_the_service_decides_as_a_player_does(tmp_path, request, kind):
    """Late rewards, units, an arm that is added and one that goes, and another worker that reads it all."""
    db = tmp_path / "tests.db" if kind == "sqlite" else request.getfixturevalue("postgres").new()
    with Api(db) as api:
        api.new(saved(tmp_path), floor=0.05)
        check_same(api, tmp_path)


def check_same(api, tmp_path):
    settings = Settings(arms=LABELS, floor=0.05)
    player = Player(tmp_path / "policy.safetensors", 5, settings=settings)
    rng, waiting = np.random.default_rng(1), []
    for t in range(30):
        if t == 10:
            api.ok("POST", "/v1/tests/home/arms", {"label": "new"})
            player.add_arm("new")
        if t == 20:
            api.ok("POST", f"/v1/tests/home/arms/{LABELS[0]}/retire", {})
            player.retire(LABELS[0])
        x = rng.normal(size=(len(player.arms), DIMS))
        names = [player.labels[arm] for arm in player.arms]
        context = dict(zip(names, x.tolist(), strict=True)) if t % 2 else x.tolist()
        unit = f"user-{t}"
        shares = api.ok("POST", "/v1/tests/home/weights", {"context": context}, role="read")["weights"]
        assert shares == player.weights(context)
        made, ours = decide(api, context, unit=unit), player.select(unit=unit, context=context)
        assert (made["arm"], made["propensity"], made["label"]) == (int(ours), ours.propensity, ours.label)
        assert made["propensity"] == shares[made["label"]]
        again = decide(api, None, unit=unit)
        assert (again["id"], again["returning"]) == (made["id"], True)
        waiting.append((made["id"], float(x[names.index(made["label"])] @ THETA)))
        if t % 3 == 2:
            for id, value in reversed(waiting):
                reward(api, id, value)
                player.update(id, value)
            waiting = []
    with Api(api.db) as other:  # it has only what is in the database
        x = rng.normal(size=(len(player.arms), DIMS)).tolist()
        assert decide(other, x)["propensity"] == player.select(context=x).propensity


def test_another_worker_catches_up(api):
    rng = np.random.default_rng(2)
    with Api(api.db) as other:
        for t in range(12):
            worker, x = (api, other)[t % 2], rng.normal(size=(ARMS, DIMS))
            made = decide(worker, x.tolist())
            reward((other, api)[t % 3 == 0], made["id"], float(x[made["arm"]] @ THETA))
        x = rng.normal(size=(ARMS, DIMS)).tolist()
        ask = ("POST", "/v1/tests/home/weights", {"context": x})
        assert api.ok(*ask)["weights"] == other.ok(*ask)["weights"]


WRONG = (
    (None, "needs a context"),
    ([1.0, 2.0, 3.0], "must have the shape"),
    ([[1.0, 2.0]] * ARMS, "must have the shape"),
    ([["1", "2", "3"]] * ARMS, "must be numbers"),
    ([[1e39, 0, 0]] * ARMS, "finite"),
    ([[]], "must have the shape"),
    ({"pink": [1.0, 2.0, 3.0]}, "not an arm of this test"),
    ({LABELS[0]: [1.0, 2.0, 3.0]}, "lacks features"),
    ("red", "must be numbers"),
    (17, "must be numbers"),
    ([None, None], "must be numbers"),
    ([[True] * DIMS] * ARMS, "must be numbers"),
    ({LABELS[0]: 1.0}, "must be numbers"),
    ([[[1.0] * DIMS] * ARMS], "must be numbers"),
)


@pytest.mark.parametrize(("context", "says"), WRONG)
def test_wrong_contexts_are_refused(api, context, says):
    decide(api, [[1.0] * DIMS] * ARMS, unit="u")
    before = api.ok("GET", "/v1/tests/home")["version"]
    if says == "must be numbers":  # also for a unit that has its arm
        body = {"context": context, "unit": "u"}
        assert says in api.refused(422, "POST", "/v1/tests/home/decide", body, role="decide")
    assert says in api.refused(422, "POST", "/v1/tests/home/decide", {"context": context}, role="decide")
    api.refused(422, "POST", "/v1/tests/home/weights", {"context": context})
    assert api.ok("GET", "/v1/tests/home")["version"] == before


def test_contexts_where_they_do_not_belong(api, files, tmp_path):
    api.new(files("softelim"), key="plain")
    x = [[1.0] * DIMS] * ARMS
    told = api.refused(422, "POST", "/v1/tests/plain/decide", {"context": x}, role="decide")
    assert "softelim takes no context" in told
    assert "needs a context" in api.refused(422, "GET", "/v1/tests/home/weights")
    flag = api("POST", "/ofrep/v1/evaluate/flags/home", {"context": {"targetingKey": "u"}})
    assert flag.status_code == 400
    assert "needs a context" in flag.json()["errorDetails"]
    body = {"context": {"targetingKey": "u", "features": x, "country": "fr"}}
    for key in ("home", "plain"):  # which needs none
        flag = api.ok("POST", f"/ofrep/v1/evaluate/flags/{key}", body)
        assert flag["variant"] in LABELS
    flags = api.ok("POST", "/ofrep/v1/evaluate/flags", body)["flags"]
    assert [flag["reason"] for flag in flags] == ["SPLIT", "SPLIT"]
    flags = api.ok("POST", "/ofrep/v1/evaluate/flags", {"context": {"targetingKey": "v"}})["flags"]
    assert [flag.get("errorCode") for flag in flags] == ["GENERAL", None]
    shown = api.ok("GET", "/v1/tests/home")
    assert [arm["share"] for arm in shown["arms"]] == [None] * ARMS  # they depend on the context
    assert shown["context"] == {"features": DIMS, "visitor": False}
    large = saved(tmp_path, arms=ARMS, dims=600, model="by-arm")
    assert "at most 1,000,000 can be served" in api.refused(422, "POST", "/v1/policies", large.read_bytes())


def test_a_report_has_exact_propensities(api):
    rng, truth, count = np.random.default_rng(3), np.zeros(ARMS), 400
    for _ in range(count):
        x = rng.normal(size=(ARMS, DIMS)) + np.array([[0.5, 0, 0]]) * np.arange(ARMS)[:, None]
        made = decide(api, x.tolist())
        truth += x @ THETA / count
        reward(api, made["id"], float(x[made["arm"]] @ THETA + rng.normal()))
    for event in read_events(api.db):
        if event["op"] == "select":
            assert event["ps"][event["arm"]] == pytest.approx(event["p"], abs=1e-6)
    found = api.ok("GET", "/v1/tests/home/report")
    for arm, mean in zip(found["arms"], truth, strict=True):
        assert_z(arm["estimate"]["mean"], arm["estimate"]["se"], mean)
    assert found["advice"] == "can't tell"


def test_the_description_has_contexts(api):
    described = json.dumps(api.ok("GET", "/openapi.json"))
    assert "Features of the arms, in their order or by name" in described
