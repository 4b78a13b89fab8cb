"""Where the kernel's count of what it killed for want of memory is, and when it counts."""

from __future__ import annotations

from pathlib import Path

import pytest

from outlast.keep.memory import OomWatch

KILLED, CHILD_KILLED, CRASHED, FAILED = 9, 137 << 8, 11, 1 << 8


class Machine:
    """Files as the kernel has them, below a folder."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.cgroups: list[str] = []
        self.mounts = ["22 1 0:20 / /proc rw - proc proc rw"]
        self.write("vmstat", "nr_free_pages 5\noom_kill 7\n")

    def write(self, name: str, text: str) -> None:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def version_2(self, path: str, root: str = "/") -> None:
        self.cgroups.append(f"0::{path}")
        self.mounts.append(f"30 22 0:26 {root} {self.root}/two rw,nosuid shared:4 - cgroup2 cgroup2 rw")

    def version_1(self, path: str, root: str = "/") -> None:
        self.cgroups += [f"5:cpu,cpuacct:{path}", f"4:memory:{path}"]
        self.mounts += [
            f"31 22 0:27 {root} {self.root}/cpu rw - cgroup cgroup rw,cpu,cpuacct",
            f"32 22 0:28 {root} {self.root}/one rw - cgroup cgroup rw,memory",
        ]

    def watch(self) -> OomWatch:
        self.write("cgroup", "\n".join(self.cgroups) + "\n")
        self.write("mountinfo", "\n".join(self.mounts) + "\n")
        return OomWatch(*(str(self.root / name) for name in ("cgroup", "mountinfo", "vmstat")))


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def events(kills: int) -> str:
    return f"low 0\nhigh 0\nmax 3\noom 1\noom_kill {kills}\noom_group_kill 0\n"


def control(kills: int) -> str:
    return f"oom_kill_disable 0\nunder_oom 0\noom_kill {kills}\n"


def test_the_cgroups_own_count(machine: Machine) -> None:
    machine.version_2("/user/agents")
    machine.write("two/user/agents/memory.events", events(2))
    watch = machine.watch()
    assert not watch.whole_machine
    assert not watch.has_killed()
    machine.write("two/user/agents/memory.events", events(3))
    assert watch.has_killed()


def test_who_is_killed_elsewhere_does_not_count(machine: Machine) -> None:
    machine.version_2("/user/agents")
    machine.write("two/user/agents/memory.events", events(0))
    watch = machine.watch()
    machine.write("vmstat", "oom_kill 8\n")
    assert not watch.has_killed()


def test_a_cgroup_above_counts_for_those_below(machine: Machine) -> None:
    """Where its own has no memory controller."""
    machine.version_2("/user/session/scope")
    machine.write("two/user/memory.events", events(0))
    watch = machine.watch()
    machine.write("two/user/memory.events", events(1))
    assert watch.has_killed()


@pytest.mark.parametrize(("path", "root"), [("/docker/abc", "/docker/abc"), ("/", "/"), ("/", "/docker/abc")])
def test_the_part_that_a_container_sees(machine: Machine, path: str, root: str) -> None:
    machine.version_2(path, root)
    machine.write("two/memory.events", events(0))
    watch = machine.watch()
    assert not watch.whole_machine
    machine.write("two/memory.events", events(1))
    assert watch.has_killed()


def test_version_1_beside_an_empty_version_2(machine: Machine) -> None:
    machine.version_2("/")
    machine.version_1("/agents")
    machine.write("one/agents/memory.oom_control", control(0))
    watch = machine.watch()
    assert not watch.whole_machine
    machine.write("one/agents/memory.oom_control", control(1))
    assert watch.has_killed()


def test_where_no_cgroup_tells_the_machine_does(machine: Machine) -> None:
    watch = machine.watch()
    assert watch.whole_machine
    assert not watch.has_starved(KILLED)
    machine.write("vmstat", "oom_kill 8\n")
    assert watch.has_starved(KILLED)
    assert not watch.has_starved(CHILD_KILLED)


def test_a_kernel_that_tells_nothing(tmp_path: Path) -> None:
    nothing = str(tmp_path / "nothing")
    assert not OomWatch(nothing, nothing, nothing).has_killed()


def test_a_cgroup_that_is_gone_tells_nothing(machine: Machine) -> None:
    machine.version_2("/a")
    machine.write("two/a/memory.events", events(1))
    watch = machine.watch()
    (machine.root / "two/a/memory.events").unlink()
    assert not watch.has_killed()


@pytest.mark.parametrize(
    ("status", "starved"),
    [(KILLED, True), (CHILD_KILLED, True), (CRASHED, False), (FAILED, False), (0, False)],
)
def test_only_a_sigkill_is_the_kernels(machine: Machine, status: int, starved: bool) -> None:
    machine.version_2("/a")
    machine.write("two/a/memory.events", events(1))
    watch = machine.watch()
    assert not watch.has_starved(status)
    machine.write("two/a/memory.events", events(2))
    assert watch.has_starved(status) is starved
