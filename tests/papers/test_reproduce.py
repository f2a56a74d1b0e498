"""Every paper in its tiny form: measured claims, report pages, and the command."""

import errno
import json
import os
import signal
import tempfile
from importlib import import_module
from pathlib import Path

import pytest

from shoal.cli import errors
from shoal.cli.reproduce import PAPERS
from shoal.papers import run
from shoal.papers.claims import UNTRIED, judge
from shoal.papers.data import Shelf
from shoal.papers.show import document, write
from shoal.report import Origin
from tests.cli.invoke import refused, result
from tests.cli.invoke import run as call
from tests.cli.test_stopping import spawn
from tests.report.skeleton import Skeleton


def test_keys_of_claims_are_unique():
    papers = [import_module(f"shoal.papers.{name}").PAPER for name in PAPERS]
    keys = [(paper.key, claim.key) for paper in papers for claim in paper.claims]
    assert len(set(keys)) == len(keys)
    assert [paper.key for paper in papers] == list(PAPERS)
    assert all(claim.checks and claim.published and claim.where for paper in papers for claim in paper.claims)


@pytest.mark.parametrize("name", PAPERS)
def test_a_tiny_run_of_a_paper(name, tmp_path):
    paper = import_module(f"shoal.papers.{name}").PAPER
    shelf, asked = Shelf(files=False), set()
    load = shelf.load
    shelf.load = lambda name, rows=None: asked.add(name) or load(name, rows)
    *before, report = run.run_papers([paper], run.TINY, shelf, lambda *_: None)
    assert asked <= set(paper.data) <= asked | {"glosses", "covtype"}  # loaded by full runs only
    assert len(before) == len(paper.experiments) - 1
    if name != "spectral":  # its claims name batch sizes that tiny runs do not have
        untried = {v.claim.key for v in report.verdicts if v.word == UNTRIED}
        assert untried <= {
            "same-minima",
            "plusplus-faster",
            "baseline",
            "beta",
        }  # need more seeds, a reached target, more time, more rows
    write(tmp_path / "report.html", [report], Origin(title="Tiny run"))
    page = (tmp_path / "report.html").read_text("utf-8")
    assert len(page) < 2_000_000
    text = Skeleton(page).text
    for verdict in report.verdicts:
        for words in (verdict.claim.statement, verdict.claim.published, verdict.word):
            assert words in text
    for note in report.notes:
        assert note in text
    for shown in report.shown:
        assert shown.what.title in text
        assert f"Published: {shown.published}" in text
    json.dumps(document([report], "tiny", Origin()), allow_nan=False)


def test_a_page_of_several_papers(tmp_path):
    papers = [import_module(f"shoal.papers.{name}").PAPER for name in PAPERS[:2]]
    reports = [run.Report(paper, [], [judge(claim, {}) for claim in paper.claims], []) for paper in papers]
    write(tmp_path / "report.html", reports, Origin(title="Two papers"))
    page = (tmp_path / "report.html").read_text("utf-8")
    assert all(f'<a href="#{name}">{name}</a>' in page and f'id="{name}"' in page for name in PAPERS[:2])
    assert f"{sum(len(paper.claims) for paper in papers)} were not tested." in page


@pytest.fixture
def little(tmp_path, monkeypatch):
    """Make quick runs tiny, without data files."""
    monkeypatch.setattr(run, "QUICK", run.TINY)
    (tmp_path / "nothing").mkdir()
    monkeypatch.setenv("SHOAL_DATA", str(tmp_path / "nothing"))
    monkeypatch.chdir(tmp_path)


@pytest.mark.usefixtures("little")
def test_the_command(capsys):
    found = result(capsys, "reproduce", "convergence", "-o", "out/here", "-q")
    assert found == json.loads(Path("out/here/claims.json").read_text())
    assert (found["format"], found["version"], found["effort"]) == ("shoal claims", 1, "tiny")
    (paper,) = found["papers"]
    assert paper["paper"] == "convergence"
    assert {claim["verdict"] for claim in paper["claims"]} <= {"holds", "holds in part", "does not hold here"}
    assert set(paper["claims"][0]) == {"key", "where", "claim", "published", "measured", "verdict", "reason"}
    assert "Figure 1: residual energy over epochs" in Path("out/here/report.html").read_text()
    assert "--force" in refused(capsys, errors.USAGE, "reproduce", "convergence", "-o", "out/here")
    code, out, err = call(capsys, "reproduce", "convergence", "-o", "out/here", "--force", "--progress", "plain")
    assert code == 0
    assert "online-first" in out
    assert "s left, convergence: Figures 1 and 2" in err


@pytest.mark.usefixtures("little")
def test_finished_reports_are_written(capsys, monkeypatch):
    """A failing paper does not affect the reports of earlier ones; --time limits the time for seeds."""
    started = []

    def some(papers, effort, *_):
        started.append(effort.seconds)
        yield run.Report(papers[0], [], [judge(claim, {}) for claim in papers[0].claims], [])
        raise MemoryError

    monkeypatch.setattr(run, "run_papers", some)
    assert call(capsys, "reproduce", "all", "--time", "2m", "-o", "out", "-q")[0] != 0
    assert [paper["paper"] for paper in json.loads(Path("out/claims.json").read_text())["papers"]] == ["convergence"]
    assert 'id="convergence"' in Path("out/report.html").read_text()
    assert started == [120.0]


@pytest.mark.usefixtures("little")
def test_invalid_calls_are_rejected(capsys, monkeypatch):
    assert "convergence" in refused(capsys, errors.USAGE, "reproduce", "magic", "-o", "out")
    assert "--output" in refused(capsys, errors.USAGE, "reproduce", "nested")
    assert "nowhere" in refused(capsys, errors.USAGE, "reproduce", "nested", "--data", "nowhere", "-o", "out")
    Path("file").write_text("")
    assert "is a file" in refused(capsys, errors.USAGE, "reproduce", "nested", "-o", "file")
    assert not Path("out").exists()
    Path("taken/report.html").mkdir(parents=True)
    assert "report.html: is a folder" in refused(capsys, errors.USAGE, "reproduce", "nested", "-o", "taken", "--force")
    with monkeypatch.context() as patch:
        full = OSError(errno.ENOSPC, "it is full")
        patch.setattr(tempfile, "TemporaryFile", lambda dir: (_ for _ in ()).throw(full))
        assert "it is full" in refused(capsys, errors.NO_ROOM, "reproduce", "nested", "-o", "full")
    monkeypatch.setenv("SHOAL_DATA", "nowhere")
    assert "SHOAL_DATA=nowhere is not a folder" in refused(capsys, errors.BAD_DATA, "reproduce", "nested", "-o", "out", "-q")
    monkeypatch.setenv("SHOAL_DATA", "nothing")
    Path("covtype.npz").write_bytes(b"no archive")  # used by the last of five papers only
    assert "covtype.npz cannot be read" in refused(
        capsys, errors.BAD_DATA, "reproduce", "all", "--data", ".", "-o", "out", "-q"
    )
    assert not Path("out/report.html").exists()
    Path("mnist.npz").write_bytes(b"no archive")
    assert "not an npz file" in refused(capsys, errors.BAD_DATA, "reproduce", "nested", "--data", ".", "-o", "out", "-q")
    Path("mnist.npz").write_bytes(b"PK\x03\x04 and no more")
    assert "mnist.npz cannot be read" in refused(
        capsys, errors.BAD_DATA, "reproduce", "nested", "--data", ".", "-o", "out", "-q"
    )


@pytest.mark.skipif(os.name != "posix", reason="signals as POSIX has them")
@pytest.mark.parametrize("moment", ["run.run_papers", "show.summary"])
def test_a_signal_leaves_no_broken_file(moment, tmp_path):
    """Neither during an experiment nor while the page is rendered."""
    code = f"""
import os, time
os.chdir({str(tmp_path)!r})
from shoal.cli import main
from shoal.papers import run, show
run.QUICK = run.TINY
def wait(*_):
    print("ready", flush=True)
    time.sleep(60)
{moment} = wait
main.main(["reproduce", "convergence", "-o", "out", "-q"])
"""
    with spawn(code) as process:
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
    assert (process.returncode, out) == (128 + signal.SIGINT, "")
    assert err.strip() == "shoal: stopped by SIGINT"
    assert not list((tmp_path / "out").iterdir())
