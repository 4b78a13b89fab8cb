"""A table of the configuration that is wrong is met by those who use its agent, and by nobody else."""

from __future__ import annotations

from tests.cli.support import Shell

WRONG = "[agents.wrong]\nkind = 'command'\ncomand = ['x']\n"


def breaks(shell: Shell, text: str) -> str:
    """Write the table behind the others; where it is."""
    with shell.config.open("a") as config:
        place = f"{shell.config}:{len(shell.config.read_text().splitlines()) + 1}"
        config.write(text)
    return place


def test_a_broken_table_keeps_nobody_from_another_agent(shell: Shell) -> None:
    assert shell.run("run", "-a", "scripted", "--session", "x", "[[say:one]]").out == "one\n"
    place = breaks(shell, WRONG)
    assert shell.run("run", "--session", "x", "[[say:two]]").out == "two\n"
    assert shell.run("send", "x", "[[say:three]]").code == 0
    assert shell.run("resume", "x").out == "three\n"
    assert shell.run("run", "-a", "scripted", "[[say:four]]").out == "four\n"
    assert [row["id"] for row in shell.json("ls", "--workspace", str(shell.folder))][-1] == "x"

    ran = shell.run("run", "-a", "wrong", "--session", "new", "--json", "hello")
    assert (ran.code, ran.error["error"]) == (2, "config")
    assert place in ran.error["message"]
    assert ran.error["hint"] == "did you mean `command`?"
    assert "new" not in [row["id"] for row in shell.sessions()], "nothing was begun for it"


def test_a_broken_agent_is_not_passed_over_for_the_one_that_is_left(shell: Shell) -> None:
    """As far as anybody can tell it is the one that was meant."""
    breaks(shell, WRONG)
    ran = shell.run("run", "hello")
    assert ran.code == 2
    assert "choose one with --agent: " in ran.err
    assert "wrong" in ran.err
    assert not shell.sessions()


def test_a_session_whose_agents_table_is_broken_later_can_still_be_ended(shell: Shell) -> None:
    """Nobody runs it: not by an input that would be stored first, and not by `resume`."""
    usual = shell.config.read_text()
    assert shell.run("run", "-a", "scripted", "--session", "x", "[[say:one]]").code == 0
    shell.config.write_text(usual.replace("command =", "comand ="))
    for words in (("run", "--session", "x", "hello"), ("resume", "x")):
        ran = shell.run(*words, "--json")
        assert (ran.code, ran.error["error"]) == (2, "config"), ran
        assert f"agents.scripted.comand` in {shell.config}:1" in ran.error["message"]
    assert len(shell.json("show", "x")["turns"]) == 1
    assert shell.run("plan", "x").code == 0
    assert shell.run("close", "x").code == 0
    shell.config.write_text(usual)
    assert shell.run("run", "--session", "x", "[[say:two]]").out == "two\n"
