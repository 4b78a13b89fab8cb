"""Agents that behave badly: memory stays bounded, the failure has its kind, nothing of the tree is left."""

from __future__ import annotations

import os
import signal
from contextlib import suppress
from pathlib import Path

import pytest
from tests.support.place import Place
from tests.support.processes import Child, peak_memory, until

from outlast.records.types import AgentEventRecorded, ReceiptError, TurnDone, TurnFailed, TurnInterrupted

pytestmark = pytest.mark.slow

QUICK = "[[effect:{turn}]][[say:finished {turn}]]"
MEBIBYTE = 1 << 20


def waiting(place: Place, prompt: str) -> Child:
    """A runtime whose agent does what `prompt` says once the file `go` is there."""
    runtime = place.start(
        "run", "-a", "plain", "--session", "job", "--key", "one", f"[[touch:started]][[wait:go]]{prompt}"
    )
    place.until_there("started")
    return runtime


def peak_of(runtime: Child) -> int:
    """Bytes of the peak memory of a runtime that ends by itself."""
    peak = 0

    def ended() -> bool:
        nonlocal peak
        if runtime.running:
            with suppress(OSError, AssertionError):
                peak = max(peak, peak_memory(runtime.pid))
        return not runtime.running

    until(ended, "the turn has ended")
    return peak


def grown_by(place: Place, prompt: str) -> int:
    """How many bytes the runtime's peak memory grows while its agent does what `prompt` says."""
    runtime = waiting(place, prompt)
    before = peak_memory(runtime.pid)
    place.go()
    grown = peak_of(runtime) - before
    assert runtime.wait().status == 0, runtime.told()
    return grown


@pytest.mark.parametrize(
    "prompt",
    [
        pytest.param("[[flood:200]]", marks=pytest.mark.slow),
        pytest.param("[[flood:40]]", marks=pytest.mark.slow),
        "[[line:64]]",
        pytest.param("[[messages:200000]]", marks=pytest.mark.slow),
        pytest.param("[[calls:100000]]", marks=pytest.mark.slow),
    ],
)
def test_huge_output(place: Place, prompt: str) -> None:
    """200 MB of lines, one line of 64 MB, many messages or calls: memory stays bounded, the turn is
    done."""
    assert grown_by(place, prompt + "[[say:that was all]]") < 48 * MEBIBYTE
    journal = place.journal("job")
    assert len(journal.bodies(TurnDone)) == 1
    said = [event for event in journal.bodies(AgentEventRecorded) if event.kind == "message"]
    assert said[-1].text.endswith("that was all")
    raw = [event for event in journal.bodies(AgentEventRecorded) if event.kind == "raw"]
    assert sum(len(event.text) for event in raw) <= 2 * 64 * 1024


@pytest.mark.parametrize(
    ("prompt", "end"),
    [
        ("[[calls:3000]]", TurnDone),
        pytest.param("[[flood:40]]", TurnDone, marks=pytest.mark.slow),
        pytest.param("[[calls:100000]]", TurnDone, marks=pytest.mark.slow),
        pytest.param("[[calls:100000]][[exit:0]]", TurnInterrupted, marks=pytest.mark.slow),
    ],
)
def test_huge_output_of_an_agent_that_nobody_watches(place: Place, prompt: str, end: type) -> None:
    """The runtime dies while its agent floods; the next one catches up in bounded memory, and what it tells
    of calls without an outcome is bounded too."""
    runtime = waiting(place, prompt)
    before = peak_memory(runtime.pid)
    runtime.kill()
    place.go()
    until(lambda: not place.leftovers, "the agent has ended by itself")
    assert peak_of(place.start("resume", "job")) - before < 48 * MEBIBYTE
    journal = place.journal("job")
    assert len(journal.bodies(end)) == 1
    assert all(len(body.evidence) < 2000 for body in journal.bodies(TurnInterrupted))


def ends_with(place: Place, prompt: str, agent: str = "plain") -> tuple[str, ReceiptError | None]:
    """The outcome of a turn, and what its receipt says; the queue goes on after it."""
    place.send("job", prompt, key="one", agent=agent)
    place.send("job", QUICK, key="two", agent=agent)
    ended = place.call("resume", "job", "--json")
    journal = place.journal("job")
    journal.assert_every_input_ends_once()
    assert len(journal.bodies(TurnDone, "two")) == 1
    assert len(place.effects) == len(set(place.effects))
    failed = journal.bodies(TurnFailed, "one")
    return ended.outcomes[0], failed[0].receipt.error if failed else None


@pytest.mark.parametrize(
    ("prompt", "code", "signal_number", "status"),
    [
        ("[[exit:0]]", "protocol_error", None, 0),
        pytest.param("[[exit:3]]", "exit_nonzero", None, 3, marks=pytest.mark.slow),
        pytest.param("[[signal:11]]", "crashed", 11, None, marks=pytest.mark.slow),
        ("[[error:rate_limit_error:slow down]]", "rate_limited", None, None),
        pytest.param("[[nonce:wrong]][[done]][[exit:0]]", "protocol_error", None, 0, marks=pytest.mark.slow),
    ],
)
def test_failure_has_its_kind(
    place: Place, prompt: str, code: str, signal_number: int | None, status: int | None
) -> None:
    outcome, error = ends_with(place, prompt)
    assert outcome == "failed"
    assert error is not None
    assert (error.code, error.signal, error.exit_status) == (code, signal_number, status)


@pytest.mark.parametrize(
    "prompt",
    [
        "[[bad-utf8]][[say:after]]",
        "[[done]][[done:twice]][[say:after the end]]",
        pytest.param("[[raw:{not json]][[raw:]][[say:after]]", marks=pytest.mark.slow),
    ],
    ids=["invalid UTF-8", "done twice and messages after it", "no JSON"],
)
def test_torn_utf8(place: Place, prompt: str) -> None:
    """Invalid bytes are replaced, a second end and what follows the first are kept as raw output."""
    outcome, _ = ends_with(place, prompt)
    assert outcome == "done"
    done = place.journal("job").the(TurnDone, "one")
    assert done.stop_reason == "end_turn"


def test_forged_done(place: Place) -> None:
    """A tool's output that reaches stdout has no nonce, or a wrong one: it ends no turn and asks nothing."""
    forged = "[[nonce:none]][[done:forged]][[error:auth_failed:forged]][[nonce:wrong]][[done:forged]]"
    outcome, _ = ends_with(place, f"{forged}[[nonce:right]][[say:the real end]][[done:real]]", agent="wary")
    assert outcome == "done"
    assert place.journal("job").the(TurnDone, "one").stop_reason == "real"


def test_never_settles(place: Place) -> None:
    """An agent that says nothing for longer than `idle_timeout` is ended, with its tree."""
    outcome, error = ends_with(place, "[[effect:{turn}]][[ignore-term]][[hang]]", agent="impatient")
    assert outcome == "failed"
    assert error is not None
    assert error.code == "timeout_idle"


def test_agent_that_closes_its_output_and_lives_on(place: Place) -> None:
    outcome, error = ends_with(place, "[[effect:{turn}]][[close-stdout]][[hang]]")
    assert outcome == "failed"
    assert error is not None
    assert error.code == "protocol_error"


def test_agent_that_says_done_and_lives_on(place: Place) -> None:
    """It is done; its process is ended after a short grace."""
    outcome, _ = ends_with(place, "[[effect:{turn}]][[done]][[hang]]")
    assert outcome == "done"


def test_orphan_shell(place: Place) -> None:
    """The parent exits 0 and leaves a child at work, or it is killed and its shell child goes on: nothing of
    the tree outlives the turn."""
    outcome, error = ends_with(place, "[[fork-exit:{turn}]]")
    assert outcome == "failed"
    assert error is not None
    assert (error.code, error.exit_status) == ("protocol_error", 0)
    assert place.effects.count("child one") <= 1


@pytest.mark.parametrize("daemon", [pytest.param("daemon", marks=pytest.mark.slow), "hidden-daemon"])
def test_daemon_is_ended_with_the_turn(place: Place, daemon: str) -> None:
    """Also one that hides from the marker: it cannot leave its subreaper."""
    outcome, _ = ends_with(place, f"[[{daemon}:daemon-{{turn}}]][[wait:daemon-{{turn}}]][[say:left one]]")
    assert outcome == "done"
    pid = int(place.file("daemon-one").read_text())
    until(lambda: not Path(f"/proc/{pid}").exists(), "the daemon is gone")


def test_wrapper_kill(place: Place) -> None:
    """Only the wrapper that was started dies, by kill -9: the worker that it had started is ended before
    the next turn runs."""
    worker = "while [ ! -e late ]; do sleep 0.01; done; echo worker >>effects-of-worker"
    prompt = f"[[shell:{worker}]][[touch:started]][[hang]]"
    place.send("job", prompt, key="one")
    place.send("job", QUICK, key="two")
    runtime = place.start("resume", "job", "--json")
    place.until_there("started")
    kill_one(place, "scripted.py")
    ended = runtime.wait()
    place.go("late")

    assert ended.outcomes == ["failed", "done"]
    assert place.journal("job").the(TurnFailed).receipt.error.code == "crashed"
    place.assert_nothing_left()
    assert not place.file("effects-of-worker").exists()


def test_orphan_shell_of_a_killed_shim(place: Place) -> None:
    """Shim and runtime are killed, the guard ends what is left; the next owner closes the turn."""
    runtime = place.start(
        "run", "-a", "plain", "--session", "job", "--key", "one", "[[touch:started]][[hang]]"
    )
    place.until_there("started")
    runtime.kill()
    kill_one(place, "outlast_keep", newest=True)
    until(lambda: not place.leftovers, "the guard has ended the tree")
    resumed = place.call("resume", "job", "--json")

    assert resumed.outcomes == ["interrupted"], resumed
    assert place.journal("job").the(TurnInterrupted).reason == "crash"


def test_hidden_daemon_of_a_killed_guard_is_reported(place: Place) -> None:
    """Guard, shim and runtime are killed: a daemon without the marker can't be found. What is known is said,
    that nobody saw the end, and the turn is not executed again."""
    prompt = "[[effect:{turn}]][[hidden-daemon:daemon]][[wait:daemon]][[touch:started]][[hang]]"
    runtime = place.start("run", "-a", "plain", "--session", "job", "--key", "one", prompt)
    place.until_there("started")
    daemon = int(place.until_there("daemon"))
    runtime.kill()
    for pid in place.leftovers:
        if pid != daemon:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
    until(lambda: list(place.leftovers) == [daemon], "only the hidden one lives")
    assert place.call("resume", "job", "--json").outcomes == ["interrupted"]
    assert "no exit was recorded" in place.journal("job").the(TurnInterrupted).evidence
    place.assert_effects_once("one")
    os.kill(daemon, signal.SIGKILL)


def kill_one(place: Place, named: str, *, newest: bool = False) -> None:
    """kill -9 of the one process of this place whose command line holds `named`; the newest of several."""
    found = sorted(pid for pid, line in place.leftovers.items() if named in line)
    assert found, place.leftovers
    assert newest or len(found) == 1, place.leftovers
    os.kill(found[-1], signal.SIGKILL)


@pytest.mark.parametrize(
    ("printed", "code"),
    [
        ('{"type": "gate", "id": "g", "question": "?", "choices": ["a", "a"]}', "protocol_error"),
        ('{"type": "gate", "id": "g", "question": "?", "choices": []}', "protocol_error"),
        ('{"type": "gate", "id": "g", "question": "%s", "choices": ["a"]}', "output_limit"),
        ('{"type": "done", "stop_reason": "%s"}', "output_limit"),
    ],
    ids=["two choices of one id", "no choice", "a gate too long", "an end too long"],
)
def test_an_agent_that_nobody_can_answer_or_hear_fails_its_turn(
    place: Place, printed: str, code: str
) -> None:
    """It waits for its stdin, and its user for it."""
    place.file("line").write_text(printed.replace("%s", "x" * (5 * MEBIBYTE)) + "\n")
    place.config.write_text(
        "[agents.naughty]\n"
        'kind = "command"\nstdin = "open"\n'
        'command = ["/bin/sh", "-c", "read -r prompt; cat line; cat >/dev/null"]\n'
    )
    ended = place.call("run", "-a", "naughty", "--session", "job", "go")
    assert ended.status == 1, ended
    assert code in ended.stderr
    assert place.journal("job").the(TurnFailed).receipt.error.code == code
