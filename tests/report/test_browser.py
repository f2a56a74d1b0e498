"""Pages in a real browser: no injected code runs, no requests are made, sorting and search work."""

import shutil

import numpy as np
import pytest

import shoal
from shoal.report import Curve, Options, Origin, Point, Trial, gather, write_compare, write_fit, write_sweep
from tests.report.hostile import PAYLOADS
from tests.strategies import blobs

BROWSER = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
FLAGS = ["--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking", "--disable-component-update"]
FLAGS += ["--disable-sync", "--no-sandbox"]  # no-sandbox: Chromium needs it to run as root, and the pages are our own
X, Y = blobs(400, 4, 4)
MODEL = shoal.KMeans(4, random_state=0).fit(X)


@pytest.fixture(scope="module")
def browser():
    sync = pytest.importorskip("playwright.sync_api", reason="playwright is not installed: pip install 'shoal[test]'")
    if BROWSER is None:
        pytest.skip("no Chromium was found: apt-get install chromium")
    with sync.sync_playwright() as driver:
        found = driver.chromium.launch(executable_path=BROWSER, args=FLAGS)
        yield found
        found.close()


class Opened:
    """Open page that records its console messages, dialogs and requests."""

    def __init__(self, browser, path, **options):
        self.context = browser.new_context(**options)
        self.page = self.context.new_page()
        self.messages, self.requests, self.failed = [], [], {}
        self.page.on("console", lambda message: self.messages.append(message.text))
        self.page.on("pageerror", lambda error: self.messages.append(str(error)))
        self.page.on("dialog", lambda dialog: (self.messages.append(dialog.message), dialog.dismiss()))
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.on("requestfailed", lambda request: self.failed.update({request.url: request.failure}))
        self.page.goto(path.as_uri())

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.context.close()

    def assert_no_messages_or_requests(self, path):
        assert self.messages == []
        assert {url for url in self.requests if not url.startswith("data:")} == {path.as_uri()}


def trials(name="lloyd"):
    curve = Curve(np.linspace(0.1, 1, 9), np.arange(9.0), 10 / np.arange(1.0, 10))
    return [Trial(name, curve, 2.0, 1.0, 9, "converged"), Trial(f"{name}2", curve, 1.0, 3.0, 9, "max_iter")]


WRITERS = {
    "fit": lambda path: write_fit(path, gather(MODEL, X, Options(image=(2, 2)))),
    "compare": lambda path: write_compare(path, trials()),
    "sweep": lambda path: write_sweep(path, [Point(k, 100 / k, 0.5) for k in range(1, 12)]),
}


@pytest.mark.parametrize("kind", WRITERS)
@pytest.mark.parametrize("script", [True, False], ids=["script", "no script"])
def test_pages_make_no_requests(browser, tmp_path, kind, script):
    path = tmp_path / "r.html"
    WRITERS[kind](path)
    with Opened(browser, path, java_script_enabled=script, viewport={"width": 390, "height": 800}) as opened:
        opened.assert_no_messages_or_requests(path)
        assert opened.page.locator("h1").is_visible()
        assert opened.page.locator(".search").first.is_visible() == (script and kind != "sweep")
        assert opened.page.locator("table.sortable tbody tr").first.is_visible()
        heads = opened.page.locator("table.sortable thead").bounding_box()
        assert (heads["height"] > 20) == script  # hidden without JavaScript, where they do not sort
        if script:
            wide = opened.page.evaluate("document.documentElement.scrollWidth")
            assert wide <= 390  # no horizontal scrolling on a narrow page


def column(page, number):
    cells = page.locator(f"table.sortable tbody tr :nth-child({number})[data-value]")
    return [float(cell.get_attribute("data-value")) for cell in cells.all()]


def test_sorting(browser, tmp_path):
    path = tmp_path / "r.html"
    WRITERS["fit"](path)
    with Opened(browser, path) as opened:
        page = opened.page
        for number in (1, 2, 3, 4, 5):
            head = page.locator(f"table.sortable thead th:nth-child({number})")
            head.locator("button").click()
            assert head.get_attribute("aria-sort") == "ascending"
            assert column(page, number) == sorted(column(page, number))
            head.locator("button").press("Enter")
            assert head.get_attribute("aria-sort") == "descending"
            assert column(page, number) == sorted(column(page, number), reverse=True)
        assert page.locator("table.sortable thead th[aria-sort]").count() == 1
        opened.assert_no_messages_or_requests(path)


def test_search(browser, tmp_path):
    path = tmp_path / "r.html"
    ids = [f"name-{y}-{i}" for i, y in enumerate(MODEL.labels_)]
    write_fit(path, gather(MODEL, X, Options(ids=ids)))
    with Opened(browser, path) as opened:
        page = opened.page
        rows = page.locator("table.sortable tbody tr")
        page.locator("input[type=search]").fill("NAME-2-")
        assert [row.get_attribute("data-cluster") for row in rows.all() if row.is_visible()] == ["2"]
        assert page.locator("output").inner_text() == "1 of 4"
        page.locator("input[type=search]").fill("")
        assert all(row.is_visible() for row in rows.all())
        opened.assert_no_messages_or_requests(path)


def test_search_for_numbers(browser, tmp_path):
    """Numbers match whole cluster or row numbers only."""
    path = tmp_path / "r.html"
    facts = gather(MODEL, X, Options(texts=["1 of many"] * 400))
    write_fit(path, facts)
    near = {c.number: [str(row.number) for row in c.nearest] for c in facts.clusters}
    with Opened(browser, path) as opened:
        rows = opened.page.locator("table.sortable tbody tr")
        for wanted, found in {
            "1": {1} | {j for j, ids in near.items() if "1" in ids}, "cluster 3": {3}, "Cluster  3": {3}, near[2][0]: {2},
            "cluster 30": set(), "of many": {0, 1, 2, 3},
        }.items():  # fmt: skip
            opened.page.locator("input[type=search]").fill(wanted)
            assert {int(row.get_attribute("data-cluster")) for row in rows.all() if row.is_visible()} == found


def test_the_map_highlights_the_hovered_cluster(browser, tmp_path):
    path = tmp_path / "r.html"
    WRITERS["fit"](path)
    with Opened(browser, path) as opened:
        page = opened.page
        page.locator("tr[data-cluster='1'] td").first.hover()
        assert page.locator("path.on").get_attribute("data-cluster") == "1"
        page.locator("h1").hover()
        assert page.locator("path.on").count() == 0


def test_light_dark_and_print_themes(browser, tmp_path):
    path = tmp_path / "r.html"
    WRITERS["fit"](path)
    grounds = []
    for scheme in ("light", "dark"):
        with Opened(browser, path, color_scheme=scheme) as opened:
            grounds.append(opened.page.evaluate("getComputedStyle(document.body).backgroundColor"))
            opened.page.emulate_media(media="print")
            assert opened.page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
            assert opened.page.evaluate("getComputedStyle(document.body).color") == "rgb(0, 0, 0)"
            assert len(opened.page.pdf()) > 10_000
    assert grounds[0] != grounds[1]


def test_the_policy_holds(browser, tmp_path):
    """Tags injected into the page have no effect."""
    path = tmp_path / "r.html"
    WRITERS["fit"](path)
    harm = "<script>window.harm = 1</script><img src=x onerror='window.harm = 1'><style>body { display: none }</style>"
    harm += "<img src='https://example.invalid/x.png'><iframe src='https://example.invalid/'></iframe>"
    path.write_text(path.read_text("utf-8").replace("<main>", f"<main>{harm}"), "utf-8")
    with Opened(browser, path) as opened:
        opened.page.wait_for_timeout(200)
        assert opened.page.evaluate("window.harm") is None
        assert opened.page.locator("h1").is_visible()
        assert {opened.failed[url] for url in opened.requests if url.startswith("http")} <= {"csp", "net::ERR_BLOCKED_BY_CSP"}
        assert any("Content Security Policy" in text for text in opened.messages)


@pytest.mark.parametrize("first", [0, *(pytest.param(i, marks=pytest.mark.slow) for i in (1, 2, 3))])
def test_hostile_text_has_no_effect(browser, tmp_path, first):
    """All payloads at once as row names, and every fourth payload in all fields of a page."""
    path, many = tmp_path / "r.html", [text for text in PAYLOADS if len(text) < 1000]
    repeated = (many * 400)[:400]
    WRITERS["fit"](path)
    with Opened(browser, path) as opened:
        for at, text in [*enumerate(many)][first::4]:
            options = Options(repeated[at:] + repeated[:at], repeated, [text] * 4)
            facts = gather(MODEL, X, options, Origin(text, text, 0, text, text, text, {text: text}, {text: text}), many[at:])
            write_fit(path, facts._replace(method=text, summary=text))
            opened.page.goto(path.as_uri())
            opened.page.locator("input[type=search]").fill(text[:50])
            assert opened.page.evaluate("window.harm") is None
            assert opened.page.locator(".tiles").is_visible()
            assert "4 columns" in opened.page.locator(".verdict").inner_text()
        opened.assert_no_messages_or_requests(path)
    write_compare(path, [t for text in many for t in trials(text)])
    with Opened(browser, path) as opened:
        opened.assert_no_messages_or_requests(path)
        assert opened.page.evaluate("window.harm") is None
