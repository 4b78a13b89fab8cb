"""The embedding runtime: owns sessions in this process, one incarnation from `async with` to its end."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType

from outlast.agents.contract import Agent, Notice
from outlast.agents.contract import Delta as Written
from outlast.agents.registry import resolve
from outlast.errors import (
    AgentNotFoundError,
    ForkedError,
    LeaseHeldError,
    OwnershipError,
    RestoreError,
    UsageError,
)
from outlast.restore.failing import as_restore_error
from outlast.restore.phases import Restored, RestoreRequest, restore
from outlast.restore.plan import RestorePlan
from outlast.restore.surroundings import Surroundings, look
from outlast.runtime import arguments, mortal
from outlast.runtime.actor import SessionActor
from outlast.runtime.adopting import adopt, look_at
from outlast.runtime.arguments import given, words
from outlast.runtime.backing import Delta
from outlast.runtime.chores import keep_tidy
from outlast.runtime.claiming import Claim
from outlast.runtime.handles import Session
from outlast.runtime.home import here, machine_id, secret
from outlast.runtime.policy import OnGate, ask, policy_of
from outlast.store.contract import Store
from outlast.store.url import default_url, open_store
from outlast.turns.effects import Effects, TurnEffect


class Runtime:
    """Owns sessions and runs their agents.

    `url` names the store (None: the default one), `agents` the agents by the name that journals record,
    `on_gate` who decides permissions: `outlast.ask` (a person, the default), `allow`, `deny` or a callable;
    where that fails, or chooses what the gate does not have, a person has to answer and the log says why.
    `effects` run around each turn that begins here, once its agent is done (docs/effects.md).
    Used as `async with`: leaving it detaches, agents live on under their shims; those of a store in memory
    end with the last Runtime that has it open. A fork of the process
    poisons it in the child: every use raises ForkedError.
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        agents: Mapping[str, Agent] | None = None,
        on_gate: OnGate = ask,
        effects: Sequence[TurnEffect] = (),
        default_agent: str | None = None,
        label: str | None = None,
    ) -> None:
        self._url = default_url(os.environ) if url is None else words(url, "address of the store")
        self._agents = arguments.agents_by_name(agents)
        self._policy = policy_of(on_gate)
        self._effects = Effects(effects)
        self._default_agent = given(words, default_agent, "default agent")
        self._label = given(words, label, "label")
        self._pid = os.getpid()
        self._entered = False
        self._store: Store | None = None
        self._actors: dict[str, SessionActor] = {}
        self._claims: dict[str, Claim[SessionActor]] = {}
        self._failures: dict[str, BaseException] = {}
        self._listeners: dict[str, list[asyncio.Queue[Delta]]] = {}
        self._serving: dict[str, asyncio.Task[None]] = {}
        self._chores: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> Runtime:
        self._check_fork()
        if self._entered:
            raise UsageError("this Runtime is open already", hint="make another one")
        self._entered = True
        try:
            self._store = await open_store(self._url, label=self._label)
        except BaseException:
            self._entered = False
            raise
        mortal.entered(self._store)
        self._chores = [asyncio.create_task(keep_tidy(self._store), name="keep the store tidy")]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        store, self._store = self._store, None
        self._entered = False
        claims, begun = list(self._claims.values()), [*self._serving.values(), *self._chores]
        for claim in claims:
            claim.give_up()
        for task in begun:
            task.cancel()
        for claim in claims:
            await claim.ended()
        if begun:
            await asyncio.wait(begun)
        try:
            # One that cannot leave must not keep the others, or the store, from it.
            left = await asyncio.gather(
                *(actor.detach() for actor in self._actors.values()), return_exceptions=True
            )
        finally:
            if store is not None:
                try:
                    await mortal.left(store)
                finally:
                    await store.close()
        for result in left:
            if isinstance(result, BaseException):
                raise result

    # --- sessions ------------------------------------------------------------------------------

    def session(self, session: str | None = None, *, workspace: str | Path | None = None) -> Session:
        """A handle: no I/O, no ownership. Without an id it is a new session."""
        return Session(self, arguments.session_or_new(session), arguments.folder(workspace))

    async def plan_restore(self, session: str) -> RestorePlan:
        """What a restore would do now; changes nothing. Raises SessionNotFoundError, IntegrityError."""
        return await look(self._surroundings(), arguments.session_id(session))

    async def restore(self, session: str, *, wait: float = 0.0, take_over: bool = False) -> Session:
        """Own the session: restore it and go on with its work, a queue that a cancel held included, also by
        one that had waited for an owner.

        `wait` seconds for a living owner to let go; `take_over` ends it by SIGKILL, verified. Raises
        RestoreError (kind `lease` when somebody owns it), SessionNotFoundError, IntegrityError. Cancelled, it
        gives back what it had taken, unless somebody else here waits for the same.
        """
        seconds = arguments.number(wait, "wait")
        request = RestoreRequest(session, wait=seconds, take_over=take_over, resume_queue=True)
        await self._own(request)
        return Session(self, session)

    async def own(self, session: str) -> Session | None:
        """Like `restore` without touching a held queue; None when somebody else owns it."""
        return await self._own_unless_held(RestoreRequest(session))

    async def adopt(
        self,
        agent: str,
        provider_session: str,
        *,
        session: str | None = None,
        workspace: str | None = None,
        actor: str | None = None,
    ) -> Session:
        """Make a session of one that `agent` began elsewhere; `provider_session` is its whole id there. What
        was said before stays with the agent as evidence, and the agent resumes it with the next input. Raises
        SessionNotFoundError where there is no such one, SessionInUseError where another process has it open
        or it is another session's, UsageError where it is damaged or its kind of agent keeps none."""
        thread, where = words(provider_session, "provider session"), arguments.folder(workspace)
        name, actor = words(agent, "agent"), given(words, actor, "actor")
        found = await asyncio.to_thread(look_at, self._resolve(name), thread, where, os.environ)
        return Session(self, await adopt(self, found, name, session, actor))

    async def visit(
        self, session: str, *, take_over: bool = False, ends_agent: bool = False
    ) -> Session | None:
        """Own the session for commands alone: an agent at work is attached to, no turn is begun. None when
        somebody else owns it. `ends_agent`: a person wants the agent ended, so a shim that is stopped is
        continued."""
        request = RestoreRequest(session, take_over=take_over, ends_agent=ends_agent, begins=False)
        return await self._own_unless_held(request)

    async def _own_unless_held(self, request: RestoreRequest) -> Session | None:
        try:
            await self._own(request)
        except RestoreError as error:
            if error.kind == "lease" and isinstance(error.__cause__, LeaseHeldError):
                return None
            raise
        return Session(self, request.session)

    async def _own(self, request: RestoreRequest) -> SessionActor:
        """One claim per session: whoever comes while it is made joins it, and then gets what it asked for."""
        self._check_fork()
        session = arguments.session_id(request.session)
        while True:
            actor = self.actor(session)
            if actor is not None and actor.leaving:
                await actor.ended.wait()
                continue
            if actor is not None:
                await actor.join(begins=request.begins, resume_queue=request.resume_queue)
                return actor
            claim = self._claims.get(session)
            if claim is None:
                claim = Claim(self._claim(request), f"claim {session}", lambda: self._claims.pop(session))
                self._claims[session] = claim
                return await claim.result()
            if claim.given_up:
                await claim.ended()
                continue
            try:
                await claim.result()
            except RestoreError as error:
                if error.kind != "lease" or not (request.wait or request.take_over):
                    raise

    async def _claim(self, request: RestoreRequest) -> SessionActor:
        restored: Restored = await restore(self._surroundings(), request)
        actor = SessionActor(
            self.store,
            restored.journal,
            restored.driver,
            attached=restored.attached,
            begins=request.begins,
            resumes=request.resume_queue,
            stops_before=restored.stops if request.resume_queue else frozenset(),
        )
        session = request.session
        restored.driver.show = lambda said: self._show(session, said)
        for other in tuple(self._actors):
            self.actor(other)  # One that has ended is let go of.
        self._actors[session] = actor
        try:
            await actor.start()
        except asyncio.CancelledError:
            await actor.detach()
            raise
        except Exception as error:
            self._actors.pop(session, None)
            told = as_restore_error(error, "append", "resume", session)
            if told is error:
                raise
            raise told from error
        return actor

    def _surroundings(self) -> Surroundings:
        return Surroundings(
            self.store,
            self._resolve,
            self._policy,
            os.environ,
            machine_id(),
            secret(self.store.folder),
            self._effects,
        )

    def _resolve(self, name: str) -> Agent:
        return resolve(name, self._agents, os.environ)

    def _show(self, session: str, said: Written | Notice) -> None:
        actor = self._actors.get(session)
        running = actor.state.running if actor else None
        for queue in self._listeners.get(session, []):
            if not queue.full():  # Live text is a courtesy: a slow reader gets it from the record.
                turn = running.turn if running else None
                queue.put_nowait(Delta(turn, said.text, notice=isinstance(said, Notice)))

    # --- what a handle asks for (runtime.backing.Backing) ----------------------------------------

    @property
    def store(self) -> Store:
        """The open store. Raises UsageError outside `async with`."""
        self._check_fork()
        if self._store is None:
            raise UsageError("the Runtime is not open", hint="use it as `async with runtime:`")
        return self._store

    def serve(self, session: str) -> None:
        """Own the session in the background unless somebody does; `serving_failed` tells of a failure."""
        actor = self.actor(session)
        waits = actor is not None and actor.leaving
        if self._store is None or session in self._serving or (self.serving(session) and not waits):
            return
        # A new attempt: what failed before it is nobody's failure any more.
        self._failures.pop(session, None)
        self._serving[session] = asyncio.create_task(self._serve(session), name=f"serve {session}")

    async def _serve(self, session: str) -> None:
        try:
            await self.own(session)
        except Exception as error:  # noqa: BLE001 - told to whoever waits for a turn, instead of to nobody
            self._failures[session] = error
        finally:
            del self._serving[session]

    def actor(self, session: str) -> SessionActor | None:
        """The session's living owner in this process."""
        actor = self._actors.get(session)
        if actor is not None and actor.ended.is_set():
            del self._actors[session]
            # Another owner of the session runs it on; one that has the agent alone does not.
            replaced = isinstance(actor.failure, OwnershipError) and actor.journal.lease.reason == "fenced"
            if actor.failure is not None and not replaced:
                self._failures.setdefault(session, actor.failure)
            return None
        return actor

    def serving_failed(self, session: str) -> BaseException | None:
        """Why this process could not own the session; told once."""
        self.actor(session)  # One that has just failed says so here.
        return self._failures.pop(session, None)

    def opening(self, agent: str | None, workspace: str | None) -> tuple[str, str]:
        """Raises AgentNotFoundError for an unknown agent, and when there is no way to choose one."""
        name = self._default_agent if agent is None else agent
        if name is None:
            if len(self._agents) != 1:
                known = ", ".join(sorted(self._agents)) or "none"
                raise AgentNotFoundError(f"no agent was named, configured: {known}", hint="pass agent=…")
            name = next(iter(self._agents))
        self._resolve(name)
        return name, here() if workspace is None else workspace

    def serving(self, session: str) -> bool:
        return self.actor(session) is not None or session in self._claims or session in self._serving

    @contextmanager
    def listen(self, session: str) -> Iterator[asyncio.Queue[Delta]]:
        queue: asyncio.Queue[Delta] = asyncio.Queue(maxsize=1000)
        self._listeners.setdefault(session, []).append(queue)
        try:
            yield queue
        finally:
            group = self._listeners[session]
            group.remove(queue)
            if not group:
                del self._listeners[session]

    def _check_fork(self) -> None:
        if os.getpid() != self._pid:
            raise ForkedError(
                "this Runtime was made by the parent process; ownership is not inherited by a fork",
                hint="make a Runtime in the child",
            )
