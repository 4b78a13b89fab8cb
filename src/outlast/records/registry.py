"""Which record types there are, in which versions, and how their bodies are read."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

import msgspec

from outlast.errors import InvalidRecordError, UnsupportedRecordError
from outlast.records import agent_state, effects, types
from outlast.records.types import BlobRef, Body

_DAMAGED = "`outlast verify` says how far it is good, `outlast repair` ends the journal before it"
_UPGRADE = "a newer outlast wrote it: read it with that one"


@dataclass(frozen=True, slots=True)
class Upcast:
    """How a body of an older version becomes one of the next version. The older shape is kept as a type of
    its own, so that it is validated as strictly as it was written."""

    shape: type[msgspec.Struct]
    to_next: Callable[[msgspec.Struct], msgspec.Struct]


class Registry:
    """Record names, versions and decoders. Bodies of older versions pass through one upcast per version.

    Raises ValueError when a version between 1 and a type's newest has no upcast, or one is left over.
    """

    def __init__(self, bodies: Iterable[type[Body]], upcasts: Mapping[tuple[str, int], Upcast]) -> None:
        self._types = {body.__name__: body for body in bodies}
        self._decoders: dict[tuple[str, int], Callable[[bytes], Body]] = {}
        self.decoders: Mapping[tuple[str, int], Callable[[bytes], Body]] = self._decoders
        """By type and version; `decode` says what is wrong where one fails or is missing."""
        wanted = {(name, v) for name, body in self._types.items() for v in range(1, body.VERSION)}
        if wanted != upcasts.keys():
            raise ValueError(f"missing or stray upcasts: {sorted(wanted ^ upcasts.keys())}")
        for name, body in self._types.items():
            self._decoders[name, body.VERSION] = msgspec.json.Decoder(body).decode
            for version in range(1, body.VERSION):
                chain = [upcasts[name, v] for v in range(version, body.VERSION)]
                self._decoders[name, version] = _upcasting(chain, body)

    @property
    def names(self) -> tuple[str, ...]:
        """All record types, in the order of their definition."""
        return tuple(self._types)

    def version(self, name: str) -> int:
        """The newest version of a record type: the one that is written. Raises UnsupportedRecordError."""
        return self._type(name).VERSION

    def require(self, name: str, version: int) -> None:
        """Raises UnsupportedRecordError for a type or version that is not known."""
        if (name, version) not in self._decoders:
            raise self._unknown(name, version)

    def _unknown(self, name: str, version: int) -> UnsupportedRecordError:
        found = f"this record is {name if name.isidentifier() else repr(name)} version {version}"
        if name not in self._types:
            reads = f"this outlast reads no version of that type, and {len(self._types)} other types"
        else:
            reads = f"this outlast reads {name} up to version {self._types[name].VERSION}"
        return UnsupportedRecordError(f"{found}, {reads}", hint=_UPGRADE)

    def is_public(self, name: str) -> bool:
        """Whether records of this type are shown outside. Raises UnsupportedRecordError."""
        return self._type(name).PUBLIC

    def decode(self, name: str, version: int, data: bytes) -> Body:
        """The body that `data` holds, in the newest version of its type.

        Raises UnsupportedRecordError for a type or version that is not known, InvalidRecordError for
        bytes that are not such a body.
        """
        decoder = self._decoders.get((name, version))
        if decoder is None:
            raise self._unknown(name, version)
        try:
            return decoder(data)
        except msgspec.DecodeError as error:
            raise InvalidRecordError(
                f"the stored body is no {name} version {version}: {error}",
                hint=_DAMAGED,
            ) from error

    def encode(self, body: Body) -> bytes:
        """The bytes to store. They are read back before they are returned, so that nothing is stored that
        could not be read. Raises InvalidRecordError for values that are not of the body's types,
        UnsupportedRecordError for a body that is no record type."""
        name = type(body).__name__
        decoder = self._decoders.get((name, body.VERSION))
        if decoder is None or self._types[name] is not type(body):
            raise UnsupportedRecordError(f"{name} is no record type of this outlast")
        try:
            data = _encode(body)
            read = decoder(data)
        except UnicodeEncodeError as error:
            raise InvalidRecordError(
                f"{name} holds a lone surrogate",
                hint="check_text refuses it where it comes in",
            ) from error
        except (TypeError, OverflowError, msgspec.MsgspecError) as error:
            raise InvalidRecordError(f"this {name} cannot be stored: {error}") from error
        # A tuple in the place of a list is stored just the same; a NaN would become null unnoticed.
        if read != body and _encode(read) != data:
            raise InvalidRecordError(f"this {name} does not come back as it was: a value is of another type")
        return data

    def _type(self, name: str) -> type[Body]:
        known = self._types.get(name)
        if known is None:
            raise UnsupportedRecordError(
                f"{name!r} is no record type that this outlast knows (it knows {len(self._types)})",
                hint=_UPGRADE,
            )
        return known


def _upcasting(chain: list[Upcast], newest: type[Body]) -> Callable[[bytes], Body]:
    decoder = msgspec.json.Decoder(chain[0].shape)

    def decode(data: bytes) -> Body:
        value: msgspec.Struct = decoder.decode(data)
        for upcast in chain:
            value = upcast.to_next(value)
        if not isinstance(value, newest):
            raise InvalidRecordError(f"the upcast of an old {newest.__name__} made a {type(value).__name__}")
        return value

    return decode


_encode = msgspec.json.Encoder(order="deterministic").encode

UPCASTS: Mapping[tuple[str, int], Upcast] = {}
"""(type, older version) -> its step to the next version. Entries stay for ever."""

REGISTRY = Registry(
    [
        value
        for value in (vars(types) | vars(agent_state) | vars(effects)).values()
        if isinstance(value, type) and issubclass(value, Body) and value not in (Body, BlobRef)
    ],
    UPCASTS,
)
"""Every record type of this outlast."""
