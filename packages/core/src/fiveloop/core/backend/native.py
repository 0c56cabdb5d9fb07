"""The one import of jaxlib's compiled modules, which carry no type stubs, and the options of a compilation.

jaxlib reads its environment while it is being imported, so the settings come first.
"""

import os
import re
from collections.abc import Mapping
from typing import Any, TypeAlias

import numpy as np

from ..dataclass import dataclass, replace


def quiet_startup() -> None:
    """Keep jaxlib from printing start-up notices, and, unless a level is set, errors, which are raised as well."""
    level = os.environ.get("TF_CPP_MIN_LOG_LEVEL", "3")
    os.environ["TF_CPP_MIN_LOG_LEVEL"] = level if level.isdigit() and int(level) else "1"


quiet_startup()

# Compiled modules without stubs; the environment above must be set before they are imported.
from jaxlib import _hlo, _jax  # type: ignore[attr-defined]  # noqa: E402
from jaxlib.version import __version__  # noqa: E402

xla: Any = _jax
hlo_types: Any = _hlo
version: str = __version__

Option: TypeAlias = str | bool | int | float


@dataclass(frozen=True, slots=True)
class CompileChoices:
    """The options of a compilation; equal options give equal programs."""

    backend_options: tuple[tuple[str, str], ...] = ()
    disabled_passes: tuple[str, ...] = ()
    optimization_level: int | None = None
    overrides: tuple[tuple[str, Option], ...] = ()

    def __post_init__(self) -> None:
        """Refuse names that are not XLA's: they would reach LLVM, which ends the process over them."""
        for name, _ in (*self.backend_options, *self.overrides):
            if not name.startswith("xla_"):
                raise ValueError(f"expected the name of an XLA option, xla_..., got {name!r}")

    def with_options(self, options: Mapping[str, Option] | None) -> "CompileChoices":
        """The same options with a user's options, by XLA's names; XLA refuses unknown names."""
        if not options:
            return self
        # As text, so that 1 and True differ, but for bools, which XLA takes as such alone.
        added = {str(n): _BOOLS.get(str(x).lower(), str(x)) for n, x in options.items()}
        return replace(self, overrides=tuple(sorted({**dict(self.overrides), **added}.items())))


_BOOLS = {"true": True, "false": False}
NO_CHOICES = CompileChoices()
"""Everything as XLA and this backend have it."""


def jaxlib_version() -> tuple[int, ...]:
    """The version of jaxlib as numbers, (0, 10, 2)."""
    return tuple([int(part) for part in re.findall(r"\d+", version)])


def drops_barriers(platform: str) -> bool:
    """Whether the compiler drops optimization barriers before it fuses."""
    return platform == "cpu" and jaxlib_version() < (0, 12)


def compile_options(choices: CompileChoices, platform: str, device_id: int) -> Any:
    """jaxlib's options for a program on one device."""
    extra = default_backend_options(platform)
    extra.update(choices.backend_options)
    options = xla.CompileOptions()
    if extra:
        proto = options.SerializeAsString() + _backend_options_proto(extra)
        options = xla.CompileOptions.ParseFromString(proto)
    if choices.overrides:
        options.env_option_overrides = list(choices.overrides)
    build = options.executable_build_options
    build.device_assignment = xla.DeviceAssignment.create(np.array([[device_id]], np.int32))
    if choices.disabled_passes:
        build.debug_options.xla_disable_hlo_passes = ",".join(choices.disabled_passes)
    if choices.optimization_level is not None:
        build.debug_options.xla_backend_optimization_level = choices.optimization_level
    return options


def default_backend_options(platform: str) -> dict[str, str]:
    """The XLA options that every program is compiled with."""
    if platform == "cpu" and jaxlib_version() < (0, 12):
        # Loops with small bodies become one kernel only below this size. Half of it is the default of 0.12, which
        # makes one of loops within loops that this version needs twice as much for.
        return {"xla_cpu_small_while_loop_byte_threshold": "131072"}
    return {}


def _backend_options_proto(extra: dict[str, str]) -> bytes:
    """The options as a serialized CompileOptions: protobuf merges what is appended.

    Before jaxlib 0.12 there is no other way in. The nesting is executable_build_options (field 3),
    debug_options (field 3), xla_backend_extra_options (field 500, a map of strings).
    """
    entries = [
        _proto_field(500, _proto_field(1, key.encode()) + _proto_field(2, value.encode()))
        for key, value in extra.items()
    ]
    return _proto_field(3, _proto_field(3, b"".join(entries)))


def _proto_field(number: int, payload: bytes) -> bytes:
    """A protobuf field whose payload has a length."""
    return _varint(number << 3 | 2) + _varint(len(payload)) + payload


def _varint(value: int) -> bytes:
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)
