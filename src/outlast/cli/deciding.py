"""Answers the questions that come up while a session is followed, as far as somebody here can."""

from __future__ import annotations

import asyncio
from typing import Protocol

from outlast.cli.console import LineReader
from outlast.cli.gates import Approve, OpenQuestion, choice_of, decided_by_rule
from outlast.cli.output import Screen
from outlast.cli.text import question_lines
from outlast.errors import UsageError
from outlast.state.choices import about_lost


class Elsewhere(Protocol):
    """The rest of the world, as far as a question is concerned."""

    async def answer(self, gate: str, choice: str, by: str) -> None:
        """Send an answer to whoever owns the session."""
        ...

    async def caught_up(self) -> None:
        """Until every answer that was given elsewhere has been carried out and seen here."""
        ...


class Decider:
    """Answers by rule, else asks the person at the terminal, else says that the session is stuck.

    A question is asked as long as it is open: an answer from elsewhere ends the asking.
    """

    def __init__(self, elsewhere: Elsewhere, approve: Approve, screen: Screen, *, ask: bool) -> None:
        self._elsewhere = elsewhere
        self._approve = approve
        self._screen = screen
        self._ask = ask
        self._asking: dict[str, asyncio.Task[None]] = {}
        self._turn = asyncio.Lock()
        self._reader: LineReader | None = None
        self.stuck: asyncio.Future[OpenQuestion] = asyncio.get_running_loop().create_future()
        """Done when a question is open that nobody here answers and the work waits for."""
        self.questions: dict[str, OpenQuestion] = {}
        """Those that are open."""

    def opened(self, question: OpenQuestion) -> None:
        self.questions[question.gate] = question
        if question.gate not in self._asking:
            self._asking[question.gate] = asyncio.create_task(self._decide(question))

    def resolved(self, gate: str) -> None:
        self.questions.pop(gate, None)
        task = self._asking.pop(gate, None)
        if task is not None:
            task.cancel()

    async def answered(self) -> bool:
        """Until nobody is asked here any more what becomes of a lost session; whether there was such a
        question. Where nobody here answers it is `stuck` that says so."""
        asked = False
        while tasks := [
            task
            for gate, task in self._asking.items()
            if not task.done() and gate in self.questions and about_lost(self.questions[gate].choices)
        ]:
            asked = True
            await asyncio.wait(tasks)
        return asked

    def hang_up(self) -> None:
        """Nobody is at the terminal any more."""
        self._ask = False
        if self._reader is not None:
            self._reader.stop()

    async def close(self) -> None:
        tasks = list(self._asking.values())
        self._asking.clear()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if self.stuck.done():
            self.stuck.exception()  # it may come too late for anybody to ask for it
        if self._reader is not None:
            self._reader.stop()

    async def _decide(self, question: OpenQuestion) -> None:
        try:
            choice = decided_by_rule(question, self._approve)
            by = f"--approve {self._approve}"
            if choice is None:
                async with self._turn:
                    choice, by = await self._ask_person(question), "the terminal"
            if choice is not None:
                await self._elsewhere.answer(question.gate, choice, by)
                return
            await self._elsewhere.caught_up()
        except Exception as error:  # noqa: BLE001 - not swallowed: handed to whoever waits
            # Whoever follows the session hears of it; a task's own error would be seen by nobody.
            if not self.stuck.done():
                self.stuck.set_exception(error)
            return
        if not question.parked and not self.stuck.done():
            self.stuck.set_result(question)

    def _somebody_is_there(self) -> bool:
        return self._ask

    async def _ask_person(self, question: OpenQuestion) -> str | None:
        if not self._somebody_is_there():
            return None
        if self._reader is None:
            self._reader = LineReader()
            self._reader.start()
        for line in question_lines(question):
            self._screen.note(line)
        while self._somebody_is_there():
            self._screen.err.write("answer: ")
            typed = await self._reader.line()
            self._screen.err.at_line_start = True  # the person's own newline
            if typed is None:
                return None
            if not typed.strip():
                continue
            try:
                return choice_of(typed, question.choices)
            except UsageError as error:
                self._screen.note(str(error))
        return None
