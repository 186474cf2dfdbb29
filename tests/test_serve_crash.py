"""The service and its database are killed under load: nothing that was answered is lost or done twice."""

import random
import time

import pytest
from serving import Client, Running, check_nothing_lost, new_test, read_events


def kill_under_load(service, kill, times, clients=6):
    """Kills something while clients decide and reward, and returns them when they are done."""
    playing = [Client(service, f"client-{number}") for number in range(clients)]
    rng = random.Random(1)
    try:
        for _ in range(times):
            time.sleep(rng.uniform(0.1, 0.5))
            kill()
        time.sleep(0.3)
    finally:
        for client in playing:
            client.stop()
    assert sum(client.retries for client in playing) > 0
    return playing


def restart(service):
    service.kill()
    service.start()


def check_service_killed(db, file, times):
    with Running(db) as service:
        new_test(service, file)
        clients = kill_under_load(service, lambda: restart(service), times)
        told = service.request("GET", "/v1/tests/home")[1]
        assert service.stop() == 0
    events = read_events(db)
    check_nothing_lost(events, clients)
    assert told["decisions"] == sum(event["op"] == "select" for event in events) > 20
    assert told["rewards"] == sum(event["op"] == "update" for event in events)


def check_database_killed(postgres, file, times):
    db = postgres.new()

    def kill():
        postgres.kill()
        time.sleep(0.1)
        postgres.start()

    with Running(db) as service:
        new_test(service, file)
        clients = kill_under_load(service, kill, times)
        assert service.stop() == 0
    check_nothing_lost(read_events(db), clients)


def test_a_killed_service_with_sqlite_loses_nothing(files, tmp_path):
    check_service_killed(tmp_path / "tests.db", files("softelim"), times=2)


def test_a_killed_database_loses_nothing(files, postgres):
    check_database_killed(postgres, files("softelim"), times=1)


@pytest.mark.slow
@pytest.mark.parametrize("what", ["service on SQLite", "service on PostgreSQL", "PostgreSQL"])
def test_a_hundred_kills_lose_nothing(what, files, tmp_path, request):
    if what == "service on SQLite":
        check_service_killed(tmp_path / "tests.db", files("softelim"), times=100)
        return
    postgres = request.getfixturevalue("postgres")
    if what == "PostgreSQL":
        check_database_killed(postgres, files("softelim"), times=100)
    else:
        check_service_killed(postgres.new(), files("softelim"), times=100)
