"""Watching a sweep from another process, and telling one that is killed from one that goes on."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from test_live_view import HIDE, SHOW, STATE, on_a_terminal, plain
from test_sweep import (  # noqa: F401  (fixtures among them)
    experiment,
    plugin_is_found,
    store,
    sweep_process,
    wait_for,
)

from bayesian_benchmarks import ResultsStore, run_experiment
from bayesian_benchmarks.commands.watch import main
from bayesian_benchmarks.errors import StoreError
from bayesian_benchmarks.store import count_rows
from bayesian_benchmarks.sweep.shared import SharedState, forget_killed, known_sweeps

ROOT = Path(__file__).resolve().parents[2]


def files(store: ResultsStore) -> list[str]:  # noqa: F811
    return sorted(path.name for path in store.path.parent.glob("*.sweep-*"))


def test_a_state_is_shared_while_its_sweep_is_under_way(store: ResultsStore) -> None:  # noqa: F811
    shared = SharedState(store.path)
    assert known_sweeps(store.path) == []
    shared.write(STATE)
    (sweep,) = known_sweeps(store.path)
    assert sweep.is_alive
    assert (sweep.state, sweep.process) == (STATE, os.getpid())
    assert known_sweeps(store.path.with_name("other.sqlite")) == []
    shared.close()
    assert known_sweeps(store.path) == []
    assert files(store) == []


def test_a_file_that_is_none_is_passed_over(store: ResultsStore) -> None:  # noqa: F811
    for name, text in (("aa", "{"), ("bb", "{}"), ("cc", json.dumps({"written_at": "now"}))):
        store.path.with_name(f"{store.path.name}.sweep-{name}.json").write_text(text)
    assert known_sweeps(store.path) == []


def test_a_sweep_goes_on_where_nothing_can_be_shared(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    shared = SharedState(tmp_path / "file" / "results.sqlite")
    shared.write(STATE)
    shared.close()


def test_rows_are_counted_without_writing(store: ResultsStore, tmp_path: Path) -> None:  # noqa: F811
    run_experiment(experiment(models=["fake", "fake-broken"]), store, jobs=0, progress=False)
    store.path.chmod(0o444)
    assert count_rows(store.path) == {"ok": 2, "failed": 2}
    for bad in (tmp_path / "nothing.sqlite", Path(__file__)):
        with pytest.raises(StoreError, match=r"Cannot read .*; give a results store"):
            count_rows(bad)
    assert not (tmp_path / "nothing.sqlite").exists()


def watch(store: ResultsStore, *arguments: str) -> subprocess.Popen[str]:  # noqa: F811
    script = ROOT / "scripts" / "watch.py"
    return subprocess.Popen(
        [sys.executable, str(script), str(store.path), *arguments],
        env=os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT), os.environ["PYTHONPATH"]])},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        # Under nohup and the like the tests' own SIGINT is ignored, and children inherit that.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )


def steps_shown(store: ResultsStore) -> list[int]:  # noqa: F811
    return [run.step for sweep in known_sweeps(store.path) for run in sweep.state.running]


def held_sweep(store: ResultsStore, tmp_path: Path) -> subprocess.Popen:  # noqa: F811
    """A sweep that has told of steps, and goes no further until `release`."""
    hold = tmp_path / "hold"
    hold.touch()
    sweep = sweep_process(store, tmp_path, FAKE_HOLD=str(hold))
    wait_for(lambda: 20 in steps_shown(store))
    return sweep


def release(tmp_path: Path) -> None:
    (tmp_path / "hold").unlink()


def test_a_sweep_is_watched_until_it_ends(store: ResultsStore, tmp_path: Path) -> None:  # noqa: F811
    """Once as lines, and then by a process that ends with it."""
    sweep = held_sweep(store, tmp_path)
    out, err = watch(store, "--once").communicate(timeout=60)
    head, total, *lines = out.splitlines()
    assert err == ""
    assert head.startswith(f"Process {sweep.pid} on ")
    assert re.match(r"[01] of 2 runs(; about \d+ (s|min) left)?$", total)
    runs = [line for line in lines if line.startswith("  ")]
    assert runs
    for line in runs:
        assert re.match(r"  fake-data split [01] fake depth 2: step \d+ of 30", line)
    assert re.match(rf"In {store.path} are [01] finished runs and 0 failed ones\.", lines[-1])

    watching = watch(store, "--seconds", "0.5")
    assert watching.stdout is not None
    assert watching.stdout.readline().startswith(f"Process {sweep.pid} on ")
    release(tmp_path)
    out, err = watching.communicate(timeout=90)
    assert sweep.wait(30) == 0
    assert watching.returncode == 0, err
    assert out.splitlines()[-2:] == [
        f"No sweep is under way on {store.path}.",
        f"In {store.path} are 2 finished runs and 0 failed ones.",
    ]
    assert files(store) == []


def test_a_terminal_shows_the_watched_sweep_and_is_left_in_order(
    store: ResultsStore,  # noqa: F811
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT), os.environ["PYTHONPATH"]]))
    sweep = held_sweep(store, tmp_path)
    code, seen = on_a_terminal(
        ["-m", "bayesian_benchmarks", "watch", str(store.path), "--seconds", "0.2"],
        "20 of 30",
        lambda _: release(tmp_path),
    )
    assert sweep.wait(30) == 0
    assert code == 0, seen
    assert re.search(r"fake-data split [01] fake depth 2 +\d+ of 30", plain(seen))
    assert re.search(r"[01] of 2 runs", plain(seen))
    assert seen.rindex(SHOW) > seen.rindex(HIDE)
    assert "2 finished runs and 0 failed ones." in seen[seen.rindex(SHOW) :]


def test_a_killed_sweep_is_told_and_swept_away_by_the_next(
    store: ResultsStore,  # noqa: F811
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    sweep = held_sweep(store, tmp_path)
    sweep.send_signal(signal.SIGKILL)
    sweep.wait()
    (known,) = known_sweeps(store.path)
    assert not known.is_alive
    assert main([str(store.path)]) == 0  # there is nothing to wait for
    first, second, third = capsys.readouterr().out.splitlines()
    assert re.match(
        rf"Process {sweep.pid} on .* was killed, at 0 of 2 runs: last heard of \d+ s ago\. The same",
        first,
    )
    assert second == f"No sweep is under way on {store.path}."
    assert third == f"In {store.path} are 0 finished runs and 0 failed ones."
    assert run_experiment(experiment(), store, jobs=0, progress=False).num_ok == 2
    assert files(store) == []


def test_a_sweep_that_ends_in_an_error_leaves_no_file(
    store: ResultsStore,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def seen(*_: object) -> None:
        assert len(known_sweeps(store.path)) == 1
        raise KeyboardInterrupt

    monkeypatch.setattr("bayesian_benchmarks.sweep.coordinator.do_job", seen)
    with pytest.raises(KeyboardInterrupt):
        run_experiment(experiment(), store, jobs=0, progress=False)
    assert files(store) == []


def test_interrupting_the_watch_leaves_the_sweep_alone(
    store: ResultsStore,  # noqa: F811
    tmp_path: Path,
) -> None:
    sweep = held_sweep(store, tmp_path)
    watching = watch(store, "--seconds", "0.2")
    assert watching.stdout is not None
    assert watching.stdout.readline().startswith("Process ")
    watching.send_signal(signal.SIGINT)
    _, err = watching.communicate(timeout=30)
    assert (watching.returncode, err) == (130, "")
    assert sweep.poll() is None
    assert known_sweeps(store.path)[0].is_alive
    sweep.send_signal(signal.SIGKILL)
    sweep.wait()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nothing.sqlite"], "Cannot read nothing.sqlite (unable to open database file); give"),
        ([__file__], "(file is not a database); give a results store."),
        (["nothing.sqlite", "--seconds", "0"], "--seconds is 0.0; it must be above 0."),
    ],
)
def test_bad_input_is_one_line(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("dkp-bench watch: ")
    assert err.count("\n") == 1
    assert message in err


def test_what_a_sweep_killed_at_its_start_leaves_is_removed(store: ResultsStore) -> None:  # noqa: F811
    """It has a claim, and has told nothing yet."""
    program = (
        "import os, sys; from pathlib import Path; from bayesian_benchmarks.sweep.shared import "
        "SharedState; SharedState(Path(sys.argv[1])); os.kill(os.getpid(), 9)"
    )
    subprocess.run([sys.executable, "-c", program, str(store.path)], check=False)
    (left,) = files(store)
    assert left.endswith(".lock")
    forget_killed(store.path)
    assert files(store) == []
