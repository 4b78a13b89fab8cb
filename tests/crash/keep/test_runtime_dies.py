"""The runtime dies; the agent does not, and nothing of what it said or was told is lost or doubled."""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING

import pytest

from outlast.keep import AttachRefusedError, BelowFloorError, InputRefusedError, ShimGoneError, probe
from outlast.keep.reader import Attached, OwnerGone

if TYPE_CHECKING:
    from .conftest import Keep, Tools

COUNTING = """
for line in sys.stdin:
    n = json.loads(line)["n"]
    with open(os.environ["ROOT"] + "/effects", "a") as file:
        file.write(f"{n}\\n")
    print(json.dumps({"done": n}))
"""

ECHO = "for line in sys.stdin: print(line, end='')\n"


async def test_a_killed_runtime_leaves_its_agent_at_work_and_the_next_owner_folds_all_of_it_once(
    keep: Keep, tools: Tools
) -> None:
    script = keep.launch(COUNTING).argv[-1]
    first = keep.runtime(
        f"""
async def main():
    generation = await start_idle(folder, claim(1))
    client = await ShimClient.connect(generation)
    await client.attach(claim(1))
    await client.start(launch({script!r}))
    for n in range(1, 6):
        await (await client.input(n, b'{{"n": %d}}\\n' % n)).written
    say("fed")
    for n in range(6, 10**9):
        await client.input(n, b'{{"n": %d}}\\n' % n)
asyncio.run(main())
"""
    )
    assert await keep.hear(first) == "fed"
    os.killpg(first.pid, signal.SIGKILL)
    first.wait()

    generation = keep.folder.latest()
    assert generation is not None
    assert probe(keep.folder).shim_alive
    client = await keep.connect(generation)
    attached = await client.attach(keep.claim(2))
    assert attached.phase == "running"
    assert tools.alive(attached.pid)
    last = attached.last_input_seq
    assert last >= 5
    accepted = await client.input(last + 1, b'{"n": %d}\n' % (last + 1))
    await accepted.written
    found = await keep.follow(client, tools.has(b'{"done": %d}\n' % (last + 1)))
    everything = range(1, last + 2)
    assert tools.inputs(found) == [b'{"n": %d}\n' % n for n in everything]
    assert tools.output(found) == b"".join(b'{"done": %d}\n' % n for n in everything)
    assert (keep.root / "effects").read_text() == "".join(f"{n}\n" for n in everything)
    assert [type(frame) for frame in found if isinstance(frame, Attached | OwnerGone)] == [
        Attached,
        OwnerGone,
        Attached,
    ]


async def test_a_half_sent_input_of_a_dead_owner_is_void_and_its_number_free(
    keep: Keep, tools: Tools
) -> None:
    from outlast.keep import frames

    generation, client = await keep.run(ECHO)
    half = frames.encode(frames.INPUT, b'{"half', flags=frames.FIRST | frames.MORE, seq=1, offset=99)
    transport = client._link._transport
    assert transport is not None
    transport.write(half)
    await client.close()
    second = await keep.attach(generation, 2)
    await (await second.input(1, b'{"whole": 1}\n')).written
    found = await keep.follow(second, tools.has(b"whole"))
    assert tools.output(found) == b'{"whole": 1}\n'


async def test_a_higher_epoch_cuts_the_owner_off_and_a_lower_one_is_refused(keep: Keep, tools: Tools) -> None:
    generation, first = await keep.run(ECHO)
    second = await keep.attach(generation, 2)
    await tools.bounded(first.lost.wait())
    assert first.lost_by is not None
    assert (first.lost_by.reason, first.lost_by.epoch, first.lost_by.holder) == ("taken", 2, "owner 2")
    with pytest.raises(ShimGoneError):
        await first.input(1, b"{}\n")
    with pytest.raises(BelowFloorError) as below:
        await keep.attach(generation, 1)
    assert below.value.floor == 2
    await (await second.input(1, b"{}\n")).written


async def test_one_epoch_belongs_to_one_holder_who_may_come_again(keep: Keep, tools: Tools) -> None:
    generation, first = await keep.run(ECHO)
    with pytest.raises(AttachRefusedError) as refused:
        await keep.attach(generation, 1, "an impostor")
    assert refused.value.reason == "other_holder"
    assert not first.lost.is_set()
    await keep.attach(generation, 1)
    await tools.bounded(first.lost.wait())


async def test_another_lineage_or_store_is_foreign(keep: Keep) -> None:
    from outlast.keep import Claim, ForeignFolderError, start_idle

    generation, _ = await keep.run(ECHO)
    client = await keep.connect(generation)
    for claim in (Claim("store", "other", 9, "x"), Claim("other", "lineage", 9, "x")):
        with pytest.raises(ForeignFolderError):
            await client.attach(claim)
        with pytest.raises(ForeignFolderError):
            await client.fence(claim)
    await (await keep.attach(generation, 1)).kill()
    await keep.ended(generation)
    with pytest.raises(ForeignFolderError):
        await start_idle(keep.folder, Claim("store", "other", 9, "x"))


async def test_a_fence_cuts_lower_epochs_without_owning(keep: Keep, tools: Tools) -> None:
    generation, first = await keep.run(ECHO)
    other = await keep.connect(generation)
    await other.fence(keep.claim(5))
    await tools.bounded(first.lost.wait())
    assert not (await other.status()).owned
    with pytest.raises(BelowFloorError):
        await keep.attach(generation, 4)
    await keep.attach(generation, 5)
    floor = probe(keep.folder).floor
    assert floor is not None
    assert floor.epoch == 5


async def test_reconnect_dup(keep: Keep) -> None:
    """An owner whose fold lags is refused instead of sending twice."""
    generation, first = await keep.run(ECHO)
    await (await first.input(1, b"{}\n")).written
    second = await keep.attach(generation, 2)
    for lagging in (1, 3):
        with pytest.raises(InputRefusedError) as refused:
            await second.input(lagging, b"{}\n")
        assert (refused.value.reason, refused.value.last_seq) == ("seq", 1)
    await second.input(2, b"{}\n")


async def test_only_the_owner_gives_orders(keep: Keep) -> None:
    from outlast.keep import RequestRefusedError

    generation, client = await keep.run(ECHO)
    other = await keep.connect(generation)
    with pytest.raises(InputRefusedError) as refused:
        await other.input(1, b"{}\n")
    assert refused.value.reason == "fenced"
    for order in (other.kill, lambda: other.set_grace(0.0), lambda: other.trim(0), other.detach):
        with pytest.raises(RequestRefusedError):
            await order()
    assert (await other.status()).owned
    assert not client.lost.is_set()


INTRUDER = """
import socket
def attach():
    try:
        folder = os.open(os.environ["ROOT"] + "/generation", os.O_RDONLY)
        sock = socket.socket(socket.AF_UNIX)
        sock.connect(f"/proc/self/fd/{folder}/sock")
        sock.settimeout(10)
        sock.sendall(open(os.environ["ROOT"] + "/attach", "rb").read())
        return sock.recv(1000)
    except OSError as error:
        return type(error).__name__.encode()
sys.stdin.readline()
print("agent", attach())
def daemon(name):
    if os.fork() == 0:
        os.setsid()
        if os.fork():
            os._exit(0)
        print(name, attach())
        os._exit(0)
daemon("daemon")
time.sleep(1000)
"""


async def test_an_agents_own_processes_cannot_attach_however_high_the_epoch_that_they_claim(
    keep: Keep, tools: Tools
) -> None:
    import ast

    from outlast.keep import frames
    from outlast.keep.fields import Fields, pack

    generation, client = await keep.run(INTRUDER)
    (keep.root / "generation").symlink_to(generation.path)
    (keep.root / "attach").write_bytes(
        frames.encode(frames.ATTACH, pack(keep.claim(10**9).fields()), offset=1)
    )
    await client.input(1, b"{}\n")
    found = await keep.follow(client, lambda found: tools.output(found).count(b"\n") == 2)
    for line in tools.output(found).decode().splitlines():
        answered = frames.decode(ast.literal_eval(line.split(" ", 1)[1]))
        assert answered is not None
        assert answered[0].type == frames.REFUSED
        assert Fields(answered[0].payload).text("code") == "not_admitted"
    assert not client.lost.is_set()
    assert (await client.status()).epoch == 1
