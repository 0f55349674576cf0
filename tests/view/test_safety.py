"""Who sees a page, what a page may do, and that names and paths are data."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import made
import pytest
from starlette.testclient import TestClient
from view.conftest import HOST, TOKEN, client_of, looked

from workbench.view.server import Guard
from workbench.view.watched import Watched

PATHS = (
    "/", "/runs", "/compare?run=x", "/study/ablation-nano-1a2b3c4d/", "/run/x", "/run/x/spec.json", "/events", "/no",
)  # fmt: skip


@pytest.mark.parametrize("path", PATHS)
def test_nothing_is_shown_without_the_cookie(path: str, watched: Watched, finished: Path) -> None:
    client = client_of(watched, let_in=False)
    for cookie in ("", "guessed"):
        client.cookies.set("workbench_view_8642", cookie)
        answer = client.get(path)
        assert answer.status_code == 403 and "rtd" not in answer.text and str(finished) not in answer.text


def test_the_token_is_exchanged_for_a_cookie_that_no_script_and_no_other_site_gets(watched: Watched) -> None:
    client = client_of(watched, let_in=False)
    assert client.get("/?token=wrong").status_code == 403 and client.get("/").status_code == 403
    elsewhere = client_of(watched, let_in=False)
    let_in = elsewhere.get(f"/runs?where=state=failed&token={TOKEN}&sort=%22>")  # a link that was sent with the token
    assert (
        'url=/runs?where=state%3Dfailed&amp;sort=%22%3E"' in let_in.text and elsewhere.get("/runs").status_code == 200
    )
    beside = elsewhere.get(f"{str(elsewhere.base_url).rstrip('/')}//evil.example/x?token={TOKEN}")
    assert 'url=/evil.example/x"' in beside.text, "a place of this server"
    assert client.post(f"/edit?token={TOKEN}").status_code == 403 and client.get("/").status_code == 403
    cookie = client.get(f"/?token={TOKEN}").headers["set-cookie"].lower()
    assert "httponly" in cookie and "samesite=strict" in cookie and TOKEN not in cookie
    assert client.get("/").status_code == 200
    assert TOKEN not in client.get("/").text


@pytest.mark.parametrize("host", ["evil.example", "evil.example:8642", "localhost.evil.example", "", "10.0.0.7:8642"])
def test_another_host_is_refused(host: str, client: TestClient) -> None:
    """A name elsewhere that is made to lead to this machine would make a foreign page one of this server."""
    assert client.get("/", headers={"host": host}).status_code == 403
    assert client.get(f"/?token={TOKEN}", headers={"host": host}).status_code == 403


@pytest.mark.parametrize("host", ["localhost:8642", "127.0.0.1:9000", "[::1]:8642"])
def test_this_machine_is_known_by_its_names_also_through_a_tunnel_with_another_port(host: str) -> None:
    assert Guard("127.0.0.1", 8642).knows(host)


def test_a_host_of_ones_own_keeps_the_token_and_takes_addresses_of_numbers() -> None:
    guard = Guard("0.0.0.0", 8642)
    assert guard.knows("10.0.0.7:8642") and not guard.knows("evil.example") and len(guard.token) > 30
    assert guard.token in guard.lines()[0] and "ssh -L 8642:127.0.0.1:8642" in Guard("127.0.0.1", 8642).lines()[1]


@pytest.mark.parametrize("origin", ["http://evil.example", "null", "http://127.0.0.1:9999", "https://127.0.0.1:8642"])
def test_a_request_from_another_page_is_refused(origin: str, client: TestClient) -> None:
    assert client.get("/runs", headers={"origin": origin}).status_code == 403
    assert client.get("/runs", headers={"origin": HOST}).status_code == 200


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS"])
def test_nothing_but_reading_is_answered(method: str, client: TestClient) -> None:
    assert client.request(method, "/runs").status_code == 405


@pytest.mark.parametrize("path", ["/", "/runs", "/study/ablation-nano-1a2b3c4d/", "/no"])
def test_a_page_runs_its_own_script_alone(path: str, client: TestClient) -> None:
    headers = client.get(path).headers
    policy = dict(part.strip().split(" ", 1) for part in headers["content-security-policy"].split(";"))
    assert policy["default-src"] == "'none'" and policy["connect-src"] == "'self'"
    for kind in ("script-src", "style-src"):
        assert policy[kind].startswith("'sha256-") and " " not in policy[kind]
    assert policy["frame-ancestors"] == policy["base-uri"] == "'none'"
    assert headers["x-content-type-options"] == "nosniff" and headers["cache-control"] == "no-store"
    assert headers["x-frame-options"] == "DENY" and headers["referrer-policy"] == "no-referrer"


def test_a_file_of_a_run_is_text_that_no_browser_runs(client: TestClient, watched: Watched, finished: Path) -> None:
    run_id = next(iter(watched.rows))
    page = finished / run_id / "page.html"
    page.write_text("<script>alert(1)</script>")
    try:
        answer = client.get(f"/run/{run_id}/page.html")
    finally:
        page.unlink()
    assert (
        answer.headers["content-type"].startswith("text/plain")
        and "'none'" in answer.headers["content-security-policy"]
    )
    assert client.get(f"/run/{run_id}/spec.json").json()["run_id"] == run_id


OUTSIDE = (
    "../store.json", "..%2fstore.json", "%2e%2e/store.json", "%2e%2e%2f%2e%2e%2fetc/passwd", "/etc/passwd",
    "%2fetc%2fpasswd", "scores/../../store.json", "link", "away/passwd", "inside", "pipe", "a%00b", "scores", "",
)  # fmt: skip


@pytest.fixture(scope="module")
def linked(finished: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[TestClient, str]:
    """A client of a store with links that lead out of it, and a run that holds some of them."""
    outside = tmp_path_factory.mktemp("outside")
    root = Path(shutil.copytree(finished, outside / "runs"))
    (outside / "passwd").write_text("not yours")
    watched = looked(root)
    run_id = next(iter(watched.rows))
    for name, target in (("link", outside / "passwd"), ("away", outside), ("inside", root / "store.json")):
        (root / run_id / name).symlink_to(target)
    os.mkfifo(root / run_id / "pipe")
    (root / "linked").symlink_to(outside)
    return client_of(watched), run_id


@pytest.mark.parametrize("path", OUTSIDE)
def test_no_path_leads_out_of_the_store(path: str, linked: tuple[TestClient, str]) -> None:
    client, run_id = linked
    for address in (f"/run/{run_id}/{path}", f"/run/linked/{path}", f"/study/ablation-nano-1a2b3c4d/{path}"):
        answer = client.get(address)
        assert answer.status_code == 404 or (path == "" and "/study/" in address), address
        assert not any(words in answer.text for words in ("not yours", "root:", '"format"'))
    assert client.get(f"/run/..%2f{run_id}/spec.json").status_code == 404
    assert client.get("/run/experiments/ablation-nano-1a2b3c4d.json").status_code == 404


def test_names_and_texts_are_data(finished: Path, tmp_path: Path) -> None:
    hostile = '"><script>alert(1)</script>'
    root = tmp_path / "runs"
    shutil.copytree(finished, root)
    watched = looked(root)
    run = watched.store.get(made.spec_of("bert-mlm", 3, {"steps": 60}).name)
    run.fail("diverged", hostile, trace=hostile)
    (root / "a'\"><script>alert(2)").mkdir()
    made.recorded(
        watched.store, [made.spec_of(arm, 0, {"steps": 60}) for arm in ("rtd", "bert-mlm")],
        name="hostile", question=hostile, command=hostile,
    )  # fmt: skip
    watched = looked(root)
    client = client_of(watched)
    odd = f"/runs?where={hostile}&sort={hostile}&columns={hostile}&page={hostile}"
    for address in (
        "/", "/runs", odd, "/study/hostile/", f"/run/{run.run_id}", f"/compare?run={hostile}", f"/run/{hostile}",
    ):  # fmt: skip
        text = client.get(address).text
        assert "<script>alert" not in text and "&lt;script&gt;alert" in text, address
