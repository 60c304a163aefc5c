"""How long containers of an image run: learnt from ended ones, over restarts too."""

from pathlib import Path

from opened_store import BOUNDS, Later, opened

from convgpu.daemon.storage.history import History


def test_three_runs_say_something_also_after_a_restart(tmp_path: Path) -> None:
    later = Later()
    with opened(tmp_path, later) as store:
        history = History(lambda: 5.0, store, BOUNDS)
        for ran in (10.0, 40.0):
            history.add("ended", "a", "x", ran=ran, image="train")
        assert history.run_times.usual("train") is None
        history.add("ended", "a", "x", ran=20, image="train")
        history.add("ended", "b", "x", ran=1.0)  # the Engine had not listed it
        assert history.run_times.usual("train") == 20.0
        assert history.run_times.usual("other") is None
        history.close()
    with opened(tmp_path) as store:
        assert History(lambda: 5.0, store, BOUNDS).run_times.usual("train") == 20.0


def test_the_newest_runs_count(tmp_path: Path) -> None:
    with opened(tmp_path) as store:
        history = History(lambda: 5.0, store, BOUNDS)
        for ran in [1.0] * 50 + [9.0] * 16:
            history.add("ended", "a", "x", ran=ran, image="train")
        assert history.run_times.usual("train") == 9.0
