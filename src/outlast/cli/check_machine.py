"""The doctor looks at the machine: what would end agents together with their runtime, and the settings."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

from outlast.cli.findings import Finding, Patient


def check_machine(patient: Patient) -> Iterator[Finding]:
    """Platform, service manager, container, configuration."""
    yield from _platform()
    yield from service_findings(_read("/proc/self/cgroup"))
    yield from _container()
    yield from _settings(patient)


def _platform() -> Iterator[Finding]:
    version = ".".join(map(str, sys.version_info[:3]))
    if sys.platform == "linux":
        yield Finding("platform", "ok", f"Linux, Python {version}")
    else:
        yield Finding(
            "platform",
            "warning",
            f"{sys.platform} is not tested; a dead agent's children are hard to find there",
        )


def service_findings(cgroup: str) -> Iterator[Finding]:
    """By the text of /proc/self/cgroup: a systemd service ends its whole group when it stops, shims too,
    unless KillMode says otherwise. A user's own session (`user@1000.service` and scopes below it) is none."""
    path = cgroup.rpartition(":")[2].strip()
    unit = next((part for part in reversed(path.split("/")) if part.endswith((".service", ".scope"))), "")
    if unit.endswith(".service") and not unit.startswith("user@"):
        yield Finding(
            "systemd",
            "warning",
            f"this runs in the service {unit}: when it stops, systemd ends agents with it",
            f"systemctl edit {unit}: KillMode=process; or run it in a scope (systemd-run --scope)",
        )
    else:
        yield Finding("systemd", "ok", "no service manager ends agents together with their runtime")


def _container() -> Iterator[Finding]:
    markers = [path for path in ("/.dockerenv", "/run/.containerenv") if Path(path).exists()]
    if markers:
        yield Finding(
            "container",
            "warning",
            "this is a container: agents end with it, and come back from the journal only",
            "keep the state folder on a volume",
        )
    else:
        yield Finding("container", "ok", "no container ends agents together with their runtime")


def _settings(patient: Patient) -> Iterator[Finding]:
    for notice in patient.config.notices:
        yield Finding("configuration", "note", notice)
    if not patient.config.notices:
        sources = ", ".join(map(str, patient.config.sources)) or "no file, the defaults"
        yield Finding("configuration", "ok", f"from {sources}")


def _read(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
