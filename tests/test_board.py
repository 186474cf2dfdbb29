"""The board in a real browser: headless Chromium beside a real service, and axe for accessibility.

Skipped where there is no Chromium; `.ci/run` installs it.
"""

import json
import re
import shutil
import time
from pathlib import Path

import pytest
from serving import Running

import gradband

FOLDER = Path(gradband.__file__).parent / "serve" / "board"
BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--disable-background-networking"]
ARMS = ["red", "blue", "green"]
needs_browser = pytest.mark.skipif(BROWSER is None, reason="there is no Chromium: install chromium")


@pytest.fixture(scope="module")
def service(tmp_path_factory):
    """A service with a token for each role in `tokens`."""
    from gradband.serve.store import open_store
    from gradband.serve.tokens import create_token

    db = tmp_path_factory.mktemp("board") / "tests.db"
    store = open_store(str(db))
    store.migrate()
    tokens = {role: create_token(store, role, f"some {role}") for role in ("admin", "read", "decide")}
    store.close()
    with Running(db, token=tokens["admin"]) as running:
        running.tokens = tokens
        yield running


@pytest.fixture(scope="module")
def browser():
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        found = playwright.chromium.launch(executable_path=BROWSER, args=FLAGS)
        yield found
        found.close()


class Tab:
    """A page of the board, with what its console said and which addresses it asked for."""

    def __init__(self, browser, service, width=1280, **settings):
        self.service = service
        self.address = f"http://127.0.0.1:{service.port}/"
        self.context = browser.new_context(viewport={"width": width, "height": 800}, **settings)
        self.context.set_default_timeout(8000)
        self.page = self.context.new_page()
        self.said, self.asked = [], []
        self.page.on("console", lambda message: self.said.append(message.text))
        self.page.on("pageerror", lambda error: self.said.append(str(error)))
        self.context.on("request", lambda request: self.asked.append(request.url))

    def open(self, role="admin", place=""):
        """Opens a view with the token of a role, entered by hand."""
        self.page.goto(f"{self.address}{place}")
        self.page.get_by_label("Token").fill(self.service.tokens[role])
        self.page.keyboard.press("Enter")
        self.see("#header", f"some {role}")
        return self.page

    def press(self, name, confirm, reason=""):
        """Presses a button of a test, and confirms its dialog."""
        self.page.get_by_role("button", name=name, exact=True).click()
        dialog = self.page.get_by_role("dialog")
        if reason:
            dialog.get_by_label("Reason").fill(reason)
        dialog.get_by_role("button", name=confirm, exact=True).click()
        dialog.wait_for(state="hidden")

    def see(self, selector, text):
        """Waits until an element with this text is shown."""
        self.page.locator(selector, has_text=text).first.wait_for()

    def nothing_wrong(self):
        assert self.said == []
        assert {url.split("/")[2] for url in self.asked if not url.startswith("blob:")} == {
            f"127.0.0.1:{self.service.port}"
        }


@pytest.fixture
def tab(browser, service):
    """Opens tabs, and closes them in the end."""
    opened = []

    def new(**settings):
        opened.append(Tab(browser, service, **settings))
        return opened[-1]

    yield new
    for found in opened:
        found.context.close()


def create(service, key, arms=ARMS, start=True, **settings):
    spec = {"key": key, "policy": "ts", "arms": arms, "seed": 3, **settings}
    assert service.request("POST", "/v1/tests", spec)[0] == 201
    if start:
        assert service.request("POST", f"/v1/tests/{key}/start", {"reason": "now"})[0] == 200


def play(service, key, decisions):
    """Makes decisions, with rewards that are slightly better for the first arm."""
    for place in range(decisions):
        made = service.request("POST", f"/v1/tests/{key}/decide", {}, service.tokens["decide"])[1]
        body = {"id": made["id"], "reward": int(place % (2 if made["arm"] == 0 else 3) == 0)}
        assert service.request("POST", f"/v1/tests/{key}/reward", body, service.tokens["decide"])[0] == 200


@needs_browser
def test_a_whole_life(tab, service):
    board = tab()
    page = board.open()
    page.get_by_role("button", name="New test").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_role("button", name="Create").click()
    assert "Name is needed" in dialog.get_by_role("alert").text_content()
    dialog.get_by_label("Name").fill("life")
    dialog.get_by_label("Arms").fill("red\nred")
    dialog.get_by_role("button", name="Create").click()
    board.see("dialog .error", "the same label")
    board.said.remove(next(text for text in board.said if "422" in text))  # Chromium tells of each refusal
    dialog.get_by_label("Arms").fill("\n".join(ARMS))
    dialog.get_by_label("Floor").fill("5")
    dialog.get_by_role("button", name="Create").click()

    board.see(".chip", "Not started")
    board.see(".sentence", "Not started: it makes no decisions yet")
    assert page.title() == "life – gradband"
    board.press("Start", "Start", reason="Design is done")
    board.see(".chip", "Running")
    play(service, "life", 60)
    board.see(".tiles .value", "60")
    board.see(".sentence", "Go on")
    assert re.fullmatch(r"[+−]?[\d.]+ ± [\d.]+ rewards", page.locator(".tiles .gain .value").text_content())
    page.get_by_role("img", name="Shares over time. Latest: red").wait_for()

    page.get_by_role("button", name="Add arm").click()
    page.get_by_label("Label").fill("yellow")
    page.get_by_role("dialog").get_by_role("button", name="Add").click()
    board.see(".arms th", "yellow")
    board.press("Pause", "Pause", reason="Sale")
    board.see(".chip", "Paused")
    assert service.request("POST", "/v1/tests/life/decide", {})[0] == 409
    board.press("Retire green", "Retire", reason="Too green")
    board.see(".arms tr.retired th", "green")
    board.press("Resume", "Resume")
    board.see(".chip", "Running")
    board.press("End", "End for good", reason="red won")
    board.see(".chip", "Ended")
    assert page.locator("main .actions button").count() == 0
    history = page.locator(".history").inner_text()
    for told in ("Design is done", "Sale", "Too green", "red won", "added yellow"):
        assert told in history
    with page.expect_download() as download:
        page.get_by_role("button", name="CSV").click()
    assert download.value.suggested_filename == "life.csv"
    assert "red" in Path(download.value.path()).read_text()

    page.get_by_role("link", name="All tests").click()
    board.see(".tests tr", "life")
    board.nothing_wrong()


@needs_browser
def test_who_may_only_read_sees_what_others_do(tab, service):
    create(service, "watched", start=False)
    board = tab()
    page = board.open("read")
    board.see(".tests tr", "watched")
    assert page.get_by_role("button", name="New test").count() == 0
    service.request("POST", "/v1/tests/watched/start")
    play(service, "watched", 12)
    board.see(".tests tr:has-text('watched') td[data-label=Decisions]", "12")
    page.get_by_role("link", name="watched").click()
    board.see(".arms th", "blue")
    board.see(".readonly", "changes need the role admin")
    assert page.locator("main [data-do=act]").count() == 0
    service.request("POST", "/v1/tests/watched/pause")
    board.see(".chip", "Paused")
    assert page.get_by_role("status").text_content() == "watched is now paused."
    board.nothing_wrong()


@needs_browser
def test_a_restart_of_the_service(tab, service):
    create(service, "restarted")
    board = tab()
    page = board.open(place="#/tests/restarted")
    board.see(".connection", "Live")
    board.see(".tiles .value", "0")
    service.stop()
    board.see("#banner", "The service does not answer")
    assert page.locator("h1").text_content() == "restarted", "what was known is still shown"
    service.start()
    play(service, "restarted", 5)
    board.see(".connection", "Live")
    board.see(".tiles .value", "5")
    assert page.locator("#banner").text_content() == ""
    page.reload()
    board.see("h1", "restarted")
    assert all("ERR_CONNECTION_REFUSED" in text or "ERR_INCOMPLETE" in text for text in board.said), (
        board.said
    )


@needs_browser
def test_tokens_that_do_not_do_and_signing_out(tab, service):
    board = tab()
    board.page.goto(board.address)
    for text, told in (
        ("gbt_wrong", "This token is not valid"),
        (service.tokens["decide"], "its role is decide"),
    ):
        board.page.get_by_label("Token").fill(text)
        board.page.get_by_role("button", name="Sign in").click()
        board.see("[role=alert]", told)
    page = board.open("read")
    assert page.evaluate("Object.values(sessionStorage)") == [service.tokens["read"]]
    assert page.evaluate("[localStorage.length, document.cookie]") == [0, ""]
    assert not any(token in url for token in service.tokens.values() for url in board.asked)
    page.get_by_role("button", name="Sign out").click()
    page.get_by_label("Token").wait_for()
    assert page.evaluate("sessionStorage.length") == 0
    page.reload()
    page.get_by_label("Token").wait_for()


@needs_browser
def test_a_revoked_token_is_signed_out(tab, service):
    from gradband.serve.store import open_store
    from gradband.serve.tokens import create_token, revoke_token

    store = open_store(service.db)
    text = create_token(store, "read", "for a while")
    board = tab()
    board.page.goto(board.address)
    board.page.get_by_label("Token").fill(text)
    board.page.keyboard.press("Enter")
    board.see("h1", "Tests")
    revoke_token(store, text.split("_")[1])
    store.close()
    deadline = time.monotonic() + 8
    place = 0
    while board.page.get_by_label("Token").count() == 0 and time.monotonic() < deadline:
        create(service, f"while-{place}", start=False)
        place += 1
        board.page.wait_for_timeout(500)
    board.see("[role=alert]", "not valid any more")


@needs_browser
def test_no_serious_fault_of_accessibility(tab, service):
    import axe_core_python

    axe = (Path(axe_core_python.__file__).parent / "axe.min.js").read_text(encoding="utf-8")
    create(service, "axe")
    play(service, "axe", 30)
    service.request("POST", "/v1/tests/axe/arms/green/retire", {"reason": "of no use"})
    board = tab()
    page = board.page
    page.goto(board.address)
    page.get_by_label("Token").wait_for()
    page.evaluate(axe)

    def check():
        for colours in ("light", "dark"):
            page.emulate_media(color_scheme=colours)
            found = page.evaluate(
                """() => axe.run({resultTypes: ["violations"]}).then(found => ({
                    passed: found.passes.length,
                    faults: found.violations.map(
                        v => [v.impact, v.id, v.nodes.length, v.nodes[0].html.slice(0, 120)])}))"""
            )
            assert found["passed"] > 10
            assert found["faults"] == [], colours

    check()
    page.get_by_label("Token").fill(service.tokens["admin"])
    page.keyboard.press("Enter")
    board.see(".tests tr", "axe")
    check()
    page.get_by_role("link", name="axe").click()
    board.see(".sentence", "Go on")
    for summary in page.locator("summary").all():
        summary.click()
    check()
    page.get_by_role("button", name="Retire red").click()
    check()


@needs_browser
def test_nothing_is_wider_than_the_screen(tab, service):
    key, arms = "k" * 64, [label.ljust(64, "w") for label in "abc"]
    create(service, key, arms, control=arms[0], control_share=0.1)
    play(service, key, 8)
    board = tab()
    page = board.open()

    def check():
        for width in (320, 360, 768):
            page.set_viewport_size({"width": width, "height": 800})
            assert page.evaluate("document.documentElement.scrollWidth") <= width
            for dialog in page.get_by_role("dialog").all():
                box = dialog.bounding_box()
                assert 0 <= box["x"] <= box["x"] + box["width"] <= width

    board.see(".tests tr", key)
    check()
    page.get_by_role("link", name=key).click()
    board.see(".tiles .value", "8")
    page.get_by_role("img", name="Shares").wait_for()
    check()
    page.get_by_role("button", name=f"Retire {arms[0]}").click()
    page.get_by_role("dialog").wait_for()
    check()


@needs_browser
def test_markup_from_others_is_text(tab, service):
    hostile = ["<img src=x onerror=hurt=1>", "<svg onload=hurt=1>", "'\"><script>hurt=1"]
    create(service, "hostile", hostile)
    reason = "</q><img src=x onerror='window.hurt=1'><script>window.hurt=1</script>"
    play(service, "hostile", 20)
    service.request("POST", "/v1/tests/hostile/pause", {"reason": reason})
    board = tab()
    page = board.open(place="#/tests/hostile")
    board.see(".history", reason)
    for label in hostile:
        page.locator(".arms th .label").get_by_text(label, exact=True).wait_for()
    page.get_by_role("button", name=f"Retire {hostile[0]}").click()
    board.see("dialog h2", f"Retire {hostile[0]}?")
    page.keyboard.press("Escape")
    page.goto(f"{board.address}#/tests/<img src=x onerror=hurt=1>")
    board.see("main", "This cannot be shown")
    assert page.evaluate("typeof hurt") == "undefined"
    assert page.locator("main img, main script").count() == 0


@needs_browser
def test_keys_alone_will_do(tab, service):
    create(service, "keys")
    board = tab()
    page = board.open()
    board.see(".tests tr", "keys")

    def focused():
        return page.evaluate("document.activeElement.textContent || document.activeElement.name")

    def walk(name, most=60):
        for _ in range(most):
            page.keyboard.press("Tab")
            if focused() == name:
                outline = page.evaluate("getComputedStyle(document.activeElement).outline")
                assert "solid 3px" in outline, name
                return
        raise AssertionError(f"Tab does not reach {name}")

    walk("keys")
    page.keyboard.press("Enter")
    page.locator("h1:focus", has_text="keys").wait_for()
    walk("Pause")
    page.keyboard.press("Enter")
    page.locator("[name=reason]:focus").wait_for()
    for _ in range(6):  # after the last control, the focus is on the browser's own, and then here again
        page.keyboard.press("Tab")
        assert page.evaluate("document.activeElement.closest('dialog, body > *')?.nodeName ?? 'BODY'") in (
            "BODY",
            "DIALOG",
        )
    page.keyboard.press("Escape")
    page.get_by_role("dialog").wait_for(state="hidden")
    assert focused() == "Pause", "the focus is where it was"
    page.keyboard.press("Enter")
    page.keyboard.type("by keys")
    page.keyboard.press("Enter")
    board.see(".chip", "Paused")
    board.see(".history q", "by keys")
    page.locator("h1:focus", has_text="keys").wait_for()
    board.nothing_wrong()


@needs_browser
def test_empty_states_help(tab, service):
    board = tab()
    board.page.route("**/v1/tests", lambda route: route.fulfill(json={"tests": []}))
    page = board.open()
    board.see("main", "There are no tests yet")
    board.see("main pre", f"{board.address}v1/policies")
    page.goto(f"{board.address}#/tests/nowhere")
    board.see("h1", "There is no test nowhere")


def test_its_files_load_nothing_from_elsewhere(service):
    for path in sorted(FOLDER.iterdir()):
        text = path.read_text(encoding="utf-8")
        elsewhere = set(re.findall(r"https?://[\w.-]+", text)) - {"http://www.w3.org"}
        assert elsewhere == set(), path.name
        assert not re.search(
            r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|Function\(", text
        )
        status, served = service.request("GET", f"/board/{path.name}", token="none")
        assert (status, served) == (200, path.read_bytes())
    index = (FOLDER / "index.html").read_text(encoding="utf-8")
    assert not re.search(r"<script>|<style|\son\w+=|\sstyle=", index)
    assert service.request("GET", "/", token="none") == (200, index.encode())
    assert service.request("GET", "/board/nothing.js")[0] == 404
    assert service.request("GET", "/board/..%2F__init__.py")[0] == 404


def test_who_a_token_belongs_to(service):
    for role in ("admin", "read"):
        told = service.request("GET", "/v1/me", token=service.tokens[role])
        assert told == (200, {"name": f"some {role}", "role": role})
    assert service.request("GET", "/v1/me", token=service.tokens["decide"])[0] == 403
    assert service.request("GET", "/v1/me", token="gbt_no")[0] == 401
    assert json.dumps(service.request("GET", "/openapi.json")[1]).count("/v1/me") == 1
