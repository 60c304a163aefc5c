import re

import pytest

from convgpu.plugin.admin_api.dashboard import FILES, POLICY


def test_the_page_allows_nothing_from_elsewhere(docker):
    answer = docker.get("/dashboard/")
    assert (answer.status_code, answer.mimetype) == (200, "text/html")
    assert answer.headers["Content-Security-Policy"] == POLICY
    assert "default-src 'none'" in POLICY
    assert (answer.headers["X-Content-Type-Options"], answer.headers["Cache-Control"]) == ("nosniff", "no-store")


@pytest.mark.parametrize("name", sorted(path.name for path in FILES.iterdir()))
def test_each_file_is_served_and_names_no_other_place(docker, name):
    answer = docker.get(f"/dashboard/{name}")
    kinds = {"html": "text/html", "css": "text/css", "js": "text/javascript", "svg": "image/svg+xml"}
    assert (answer.status_code, answer.mimetype) == (200, kinds[name.rpartition(".")[2]])
    assert re.findall(r"(?:https?:)?//[\w.-]+\.\w+", answer.text.replace("http://www.w3.org/2000/svg", "")) == []


@pytest.mark.parametrize(
    "path", ["/dashboard/../server.py", "/dashboard/%2e%2e/server.py", "/dashboard/x", "/dashboard"]
)
def test_nothing_else_is_served(docker, path):
    assert docker.get(path).status_code in {404, 308}


def test_it_is_read_only(docker):
    assert docker.post("/dashboard/").status_code == 405
