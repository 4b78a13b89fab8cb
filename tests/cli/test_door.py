"""An agent cannot speak to its own session, whatever its tool calls do."""

import json
import sys

from tests.cli.support import Shell, until


def command(shell: Shell, *arguments: str) -> str:
    """A shell command for the scripted agent that runs `outlast` and keeps what it says."""
    environ = " ".join(f"{name}='{value}'" for name, value in shell.environ.items())
    run = f"{sys.executable} -m outlast {' '.join(arguments)}"
    return f"env -i {environ} {run} >said 2>&1; echo $? >code.new; mv code.new code"


def test_a_tool_call_cannot_send_to_its_own_session(shell: Shell) -> None:
    prompt = f"[[shell:{command(shell, 'send', 's', 'more')}]][[wait:code]]"
    ran = shell.run("run", "-a", "scripted", "--session", "s", prompt)
    assert ran.code == 0, ran
    assert (shell.folder / "code").read_text() == "2\n"
    assert "started by the session's own agent" in (shell.folder / "said").read_text()
    assert shell.sessions()[0]["turns"] == 1


def test_a_tool_call_cannot_answer_its_own_question(shell: Shell) -> None:
    """Not even detached from its agent, with an empty environment."""
    answer = command(shell, "answer", "s", '"$(cat gate)"', "allow_once")
    (shell.folder / "hidden.sh").write_text(f"until [ -e gate ]; do sleep 0.01; done\n{answer}\n")
    prompt = "[[shell:(setsid sh hidden.sh &)]][[gate:g:May I?:allow_once,reject_once]]"
    assert shell.run("run", "-a", "scripted", "--session", "s", prompt).code == 6
    (gate,) = shell.show("s")["gates"]
    (shell.folder / "gate.new").write_text(gate["id"])
    (shell.folder / "gate.new").rename(shell.folder / "gate")
    until((shell.folder / "code").exists, "the refusal")
    assert (shell.folder / "code").read_text() == "2\n", (shell.folder / "said").read_text()
    assert shell.sessions()[0]["open_gates"] == 1


def test_an_agent_may_use_outlast_for_other_sessions(shell: Shell) -> None:
    prompt = (
        f"[[shell:{command(shell, 'run', '-a', 'scripted', '--session', 'other', 'hello')}]][[wait:code]]"
    )
    assert shell.run("run", "-a", "scripted", "--session", "s", prompt).code == 0
    assert (shell.folder / "code").read_text() == "0\n"
    assert {row["id"] for row in shell.sessions()} == {"s", "other"}
    assert json.dumps(shell.show("other")["turns"][0]["outcome"]) == '"done"'
