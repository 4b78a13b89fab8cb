"""A folder's own file runs nothing until it is trusted, by any command."""

import json
import os
import pty

from tests.cli.support import Shell, on_terminal, reader, until

from outlast.testing import agents


def plant(shell: Shell) -> None:
    """An outlast.toml whose program leaves a trace when it runs."""
    command = json.dumps(["sh", "-c", "touch planted"])
    text = (
        f'[agents.planted]\nkind = "command"\ncommand = {command}\n[agents.scripted]\ncommand = {command}\n'
    )
    (shell.folder / "outlast.toml").write_text(text)


def test_an_untrusted_folder_runs_nothing(shell: Shell) -> None:
    plant(shell)
    ran = shell.run("run", "-a", "scripted", "hello")
    assert (ran.code, ran.out) == (0, "hello\n")
    assert "is not trusted: left out" in ran.err
    assert shell.run("run", "-a", "planted", "hello").code == 3
    for command in (("ls",), ("agents",), ("doctor",), ("resume", "x"), ("send", "x", "y")):
        shell.run(*command)
    assert not (shell.folder / "planted").exists()


def test_what_is_left_out_is_named_in_one_short_line(shell: Shell) -> None:
    agents = "".join(f'[agents.a{i}]\nkind = "command"\ncommand = ["true"]\n' for i in range(20))
    (shell.folder / "outlast.toml").write_text(agents)
    (told,) = shell.run("agents").err.splitlines()
    assert "left out agents.a0.kind, agents.a0.command, agents.a1.kind, agents.a1.command and 36 more" in told


def test_trust_lets_it_count_until_it_changes(shell: Shell) -> None:
    below = shell.folder / "below"
    below.mkdir()
    command = json.dumps(agents.command(agents.SCRIPTED))
    toml = f'[agents.own]\nkind = "command"\nstdin = "open"\ncommand = {command}\n'
    (shell.folder / "outlast.toml").write_text(toml)
    assert shell.run("run", "-a", "own", "hello").code == 3
    trusted = shell.json("trust", str(below))
    assert trusted == {"file": str(shell.folder / "outlast.toml"), "trust": "trusted"}
    ran = shell.run("run", "-a", "own", "--workspace", "below", "hello")
    assert (ran.code, ran.out) == (0, "hello\n")
    assert "left out" not in ran.err

    (shell.folder / "outlast.toml").write_text(toml + "\n# pulled\n")
    changed = shell.run("run", "-a", "own", "hello")
    assert changed.code == 3
    assert "has changed since it was trusted" in changed.err
    assert shell.run("trust").code == 0
    assert shell.run("run", "-a", "own", "hello").code == 0
    revoked = shell.json("trust", "--revoke")
    assert revoked == {"file": str(shell.folder / "outlast.toml"), "trust": "unknown"}
    assert shell.run("run", "-a", "own", "hello").code == 3


def test_a_person_is_asked_once(shell: Shell) -> None:
    plant(shell)
    for asked in (True, False):
        master, slave = pty.openpty()
        run = shell.start(
            "run", "-a", "scripted", "hello",
            **on_terminal(slave),
        )  # fmt: skip
        os.close(slave)
        seen = reader(master)
        if asked:
            until(lambda seen=seen: "trust it?" in seen(), "the question")  # type: ignore[misc]
            assert "planted: sh -c 'touch planted'" in seen()
            os.write(master, b"n\n")
        out, _ = run.communicate(timeout=30)
        assert (run.returncode, out) == (0, "hello\n")
        assert ("trust it?" in seen()) is asked
        os.close(master)
    assert not (shell.folder / "planted").exists()


def test_trust_of_nothing_is_not_found(shell: Shell) -> None:
    ran = shell.run("trust")
    assert ran.code == 3
    assert "there is no outlast.toml" in ran.err


def test_a_file_that_cannot_be_used_is_not_trusted(shell: Shell) -> None:
    (shell.folder / "outlast.toml").write_text("[broken")
    assert shell.run("trust").code == 2
