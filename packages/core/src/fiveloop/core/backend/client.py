"""Devices and compiled programs: put a NumPy array, compile a module, run it, read the result."""

import os
import re
import threading
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cache, partial
from sys import getrefcount
from typing import Any, ClassVar, Protocol, TypeAlias

import numpy as np

from ..dataclass import dataclass
from ..errors import DonatedError
from . import lazy
from .compilation_cache import active_cache, count
from .dlpack import as_numpy
from .gpu import make_cuda_client, plugin_path, without_annotator
from .host_calls import HostFunction as HostFunction
from .host_calls import Run, attached, interruptible, raised_by, tell_failure
from .native import NO_CHOICES as NO_CHOICES
from .native import CompileChoices as CompileChoices
from .native import compile_options, hlo_types, version, xla
from .native import jaxlib_version as jaxlib_version

Buffer: TypeAlias = Any
"""A PJRT array, jaxlib's `ArrayImpl`: it has no stubs, and its class cannot be subclassed."""

BUFFER_CLASS: type = xla.ArrayImpl

aval_of: Callable[[Buffer], Any] = xla.ArrayImpl.aval.fget
"""The aval that a buffer was made with, in half the time of the attribute."""

PLATFORMS = ("cpu", "cuda")
"""The platforms that programs are lowered for."""


class AvalLike(Protocol):
    """What XLA's C++ reads of an abstract value; any object with these will do."""

    @property
    def shape(self) -> tuple[Any, ...]:
        """The length of each axis."""

    @property
    def dtype(self) -> np.dtype:
        """The element type."""

    @property
    def weak_type(self) -> bool:
        """Whether the dtype came from a Python scalar."""


class Exporter(Protocol):
    """An object that offers its memory by DLPack."""

    def __dlpack__(self) -> Any:
        """A capsule with the memory."""


@dataclass(frozen=True, slots=True)
class Aval:
    """The least abstract value, for programs of the backend's own."""

    shape: tuple[int, ...]
    dtype: np.dtype
    weak_type: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class Client:
    """One platform's PJRT client, and its first device, on which programs run."""

    raw: Any
    platform: str
    device: Any
    device_list: Any
    sharding: Any


_client_lock = threading.Lock()
_clients: list[Client] = []

_forked: list[str] = []
AFTER_FORK: list[Callable[[], object]] = []
"""What keeps a forked process from programs that are called without asking here."""


def _after_fork() -> None:
    if _clients or _client_lock.locked():
        _forked.append("")
        for forget in AFTER_FORK:
            forget()


os.register_at_fork(after_in_child=_after_fork)


def refuse_if_forked() -> None:
    """Raise RuntimeError in a process that was forked when XLA had started, whose threads it lacks: it would hang."""
    if _forked:
        raise RuntimeError(
            "this process was forked after fiveloop had compiled or run something, and lacks XLA's threads, so that "
            "it can only read arrays; start it with multiprocessing's 'spawn' or 'forkserver', or fork before that"
        )


def default_client() -> Client:
    """The client that everything runs on, made at first use; `FIVELOOP_PLATFORM` chooses it."""
    if not _clients:
        refuse_if_forked()
        with _client_lock:
            if not _clients:
                _clients.append(_make_client(os.environ.get("FIVELOOP_PLATFORM") or "cpu"))
    return _clients[0]


def _make_client(wanted: str) -> Client:
    if wanted not in (*PLATFORMS, "auto"):
        raise RuntimeError(f"FIVELOOP_PLATFORM: expected cpu, cuda or auto, got {wanted!r}")
    if wanted == "cuda" or (wanted == "auto" and plugin_path() is not None):
        return wrap_client(make_cuda_client(), "cuda")
    return wrap_client(xla.get_tfrt_cpu_client(asynchronous=True, num_devices=1), "cpu")


def wrap_client(raw: Any, platform_name: str) -> Client:
    """A `Client` of a PJRT client."""
    device = raw.local_devices()[0]
    device_list = xla.DeviceList((device,))
    # The only sharding class that is all C++ in every version of jaxlib.
    sharding = xla.GSPMDSharding(device_list, hlo_types.HloSharding.replicate(), memory_kind=None)
    return Client(raw, platform_name, device, device_list, sharding)


def devices() -> list[Any]:
    """The devices of the default client."""
    return list(default_client().raw.local_devices())


def platform() -> str:
    """The platform of the default client: "cpu" or "cuda"."""
    return default_client().platform


def memory_bytes() -> int:
    """How many bytes the memory of the device has."""
    client = default_client()
    if client.platform == "cpu":
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return int(client.device.memory_stats()["bytes_limit"])


@cache
def _handler_options() -> dict[str, bool]:
    # Needed before jaxlib 0.11 and refused from there on.
    try:
        xla.array_result_handler(
            Aval((), np.dtype(np.float32)), default_client().sharding, True, _skip_checks=True
        )
    except TypeError:
        return {}
    return {"_skip_checks": True}


def put(x: np.ndarray, aval: AvalLike, *, owned: bool = False) -> Buffer:
    """Copy a NumPy array to the device; `owned` says that nobody will write to it, so it may be shared."""
    array = np.asarray(x)
    if array.shape != tuple(aval.shape):
        raise ValueError(f"put: expected an array of shape {aval.shape}, got {array.shape}")
    if array.dtype != aval.dtype or not array.dtype.isnative:
        array = array.astype(aval.dtype)
    if not owned:
        return put_copy(array, aval)
    client = default_client()
    return _put(aval, client.sharding, [array], [client.device], True, False, _SHARED, True)


def put_copy(array: np.ndarray, aval: AvalLike) -> Buffer:
    """Copy to the device a NumPy array that is known to have the aval's shape and native dtype."""
    client = _clients[0] if _clients else default_client()
    return _put(aval, client.sharding, [array], [client.device], True, True, _COPIED, True)


_put = xla.batched_device_put
_SHARED = xla.HostBufferSemantics.ZERO_COPY
_COPIED = xla.HostBufferSemantics.IMMUTABLE_ONLY_DURING_CALL

_Spares: TypeAlias = deque[np.ndarray[Any, Any]]
_spares: dict[tuple[np.dtype[Any], tuple[int, ...]], _Spares] = {}
_IN_PLACE = 64
"""XLA reads host memory in place at multiples of so many bytes, and copies it from elsewhere."""
_MOST_SPARE = 1 << 24
_spare_bytes = [0]


def host_copy(x: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """A copy of a small NumPy array where XLA reads it in place, in memory that XLA has let go of if there is any.

    XLA holds on to the arrays that it may still read, and so does who has got one: an array of one holder is free.
    """
    spares = _spares.get((x.dtype, x.shape))
    if spares:
        try:
            out = spares.popleft()  # no other thread gets it now
        except IndexError:
            return _new_host_copy(x)
        held = getrefcount(out)
        spares.append(out)
        if held == _ONE_HOLDER:
            out[...] = x
            return out
    return _new_host_copy(x)


def _one_holder() -> int:
    """How many references `host_copy` counts where it holds the only one: that depends on the interpreter."""
    spares = deque([np.empty(0)])
    out = spares.popleft()
    held = getrefcount(out)
    return held


_ONE_HOLDER = _one_holder()


def _new_host_copy(x: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    if _spare_bytes[0] > _MOST_SPARE:
        _spares.clear()
        _spare_bytes[0] = 0
    room = bytearray(x.nbytes + _IN_PLACE)  # not an array, so that views of `out` hold `out`
    start = -np.frombuffer(room, np.uint8).ctypes.data % _IN_PLACE
    out = np.ndarray(x.shape, x.dtype, room, start)
    out[...] = x
    _spares.setdefault((x.dtype, x.shape), deque()).append(out)
    _spare_bytes[0] += len(room)
    return out


def copy(buf: Buffer) -> Buffer:
    """The same contents in memory of its own."""
    client = default_client()
    copies: list[Buffer] = xla.batched_copy_array_to_devices_with_sharding(
        [buf], [client.device_list], [client.sharding], [xla.ArrayCopySemantics.ALWAYS_COPY]
    )
    return copies[0]


def _require_contents(buf: Buffer) -> None:
    if buf.is_deleted():
        raise DonatedError(
            f"expected an array with contents, got one of shape {tuple(buf.aval.shape)} and dtype "
            f"{buf.aval.dtype} that was deleted or donated; copy it before donating it"
        )


def wait_for(buf: Buffer) -> None:
    """Wait until a buffer has its contents, and raise its error."""
    _require_contents(buf)
    buf.block_until_ready()


wait_for_all: Callable[[list[Buffer]], None] = xla.batched_block_until_ready
"""Wait until all buffers have their contents, and raise their errors; RuntimeError if one was deleted or donated."""


def to_numpy(buf: Buffer) -> np.ndarray:
    """The contents of a buffer as a read-only NumPy array; waits for it, and raises its error."""
    if not buf.is_deleted():
        array: np.ndarray = np.asarray(
            buf
        )  # by the buffer protocol, which knows NumPy's own dtypes
        if array.dtype is buf.aval.dtype:
            return array
    wait_for(buf)
    if _HAS_READ:
        array = buf._to_np_array_did_copy()[0]
    elif buf.aval.dtype.isbuiltin != 1:
        array = as_numpy(xla.buffer_to_dlpack_managed_tensor(buf))
    if array.dtype == object:
        raise RuntimeError(f"reading an array of dtype {buf.aval.dtype} failed")
    return array


def array_struct(buf: Buffer) -> object:
    """What NumPy reads a buffer by, and keeps its memory; AttributeError of dtypes that are not NumPy's own."""
    if not buf.is_deleted():
        array = np.asarray(buf)
        # Beside jax, which gives buffers an `__array__`, other dtypes come here; the struct does not tell which.
        if array.dtype is buf.aval.dtype and array.dtype.isbuiltin == 1:
            return array.__array_struct__
    raise AttributeError("__array_struct__")


_HAS_READ = hasattr(BUFFER_CLASS, "_to_np_array_did_copy")


def require_alive(args: Sequence[Buffer], what: str = "") -> None:
    """Raise DonatedError if an argument has no contents: before a run, or after it has failed for that."""
    for k, buf in enumerate(args):
        if buf.is_deleted():
            shape = ",".join([str(d) for d in buf.aval.shape])
            place = f"{what}: argument {k}" if what else f"argument {k}"
            raise DonatedError(
                f"{place}, {buf.aval.dtype}[{shape}], was deleted or donated; copy it before donating it"
            ) from None


def tells_donated(error: Exception) -> bool:
    """Whether a run failed because an argument has no contents, or gives them away twice."""
    text = str(error)
    return isinstance(error, DonatedError) or (
        text.startswith("INVALID_ARGUMENT") and "donate" in text
    )


def to_dlpack(buf: Buffer) -> Any:
    """A DLPack capsule that shares the buffer's memory."""
    _require_contents(buf)
    return xla.buffer_to_dlpack_managed_tensor(buf)


def dlpack_device(buf: Buffer) -> tuple[int, int]:
    """DLPack's numbers for the kind and the index of the device that holds the buffer."""
    client = default_client()
    return (1, 0) if client.platform == "cpu" else (2, int(client.device.local_hardware_id))


def from_dlpack(
    source: Exporter, aval_of: Callable[[tuple[int, ...], np.dtype], AvalLike]
) -> Buffer:
    """A buffer of the host memory that `source` offers: shared if XLA can use it as it is, else a copy."""
    # jaxlib's own way in imports jax if it is installed, so the way leads through NumPy.
    array = as_numpy(source.__dlpack__())
    return put(array, aval_of(array.shape, array.dtype), owned=True)


@dataclass(frozen=True, slots=True)
class MemoryStats:
    """Bytes that a compiled program needs, as XLA planned them."""

    argument: int
    output: int
    temp: int
    alias: int
    generated_code: int
    peak: int


class Executable:
    """A compiled program, loaded on the device; C++ turns its raw results into buffers with the given avals."""

    __slots__ = ("handlers", "out_avals", "raw")
    calls_host: ClassVar[bool] = False

    def __init__(self, raw: Any, out_avals: Sequence[AvalLike]) -> None:
        self.raw = raw
        self.out_avals = list(out_avals)
        make = partial(xla.array_result_handler, **_handler_options())
        self.handlers = [make(a, default_client().sharding, True) for a in self.out_avals]

    def execute(self, args: Sequence[Buffer]) -> list[Buffer]:
        """Run the program; results may still be under way when this returns."""
        refuse_if_forked()
        require_alive(args)
        results = self.raw.execute_sharded(args)
        outs: list[Buffer] = results.consume_with_handlers(self.handlers)
        return outs

    def run(self, args: Sequence[Buffer]) -> list[Buffer]:
        """Run the program, without asking whether its arguments are there: XLA's error says less."""
        refuse_if_forked()
        outs: list[Buffer] = self.raw.execute_sharded(args).consume_with_handlers(self.handlers)
        return outs

    def execute_for(self, args: Sequence[Buffer], use: Callable[[list[Buffer]], object]) -> None:
        """Run the program and hand its results to `use`, also where Ctrl-C comes while it runs: before that goes on."""
        refuse_if_forked()
        require_alive(args)
        made: list[Any] = []
        try:
            # All in C, after which Python looks for signals.
            made.extend(map(self.raw.execute_sharded, [args]))
        finally:
            if made:
                use(made[0].consume_with_handlers(self.handlers))

    def memory_analysis(self) -> MemoryStats:
        """Bytes of arguments, results, temporaries and code."""
        stats = self.raw.get_compiled_memory_stats()
        return MemoryStats(
            argument=stats.argument_size_in_bytes,
            output=stats.output_size_in_bytes,
            temp=stats.temp_size_in_bytes,
            alias=stats.alias_size_in_bytes,
            generated_code=stats.generated_code_size_in_bytes,
            peak=stats.peak_memory_in_bytes,
        )

    def cost_analysis(self) -> dict[str, float]:
        """XLA's own estimates: `flops`, `bytes accessed` and others."""
        return dict(self.raw.cost_analysis())

    def optimized_text(self) -> str:
        """The program after XLA's passes, scheduling included."""
        return "\n".join([module.to_string() for module in self.raw.hlo_modules()])


class CallingExecutable(Executable):
    """A compiled program that calls Python functions, to which it holds on."""

    __slots__ = ("host_functions", "running")
    calls_host: ClassVar[bool] = True

    def __init__(
        self,
        raw: Any,
        out_avals: Sequence[AvalLike],
        host_functions: Sequence[HostFunction],
        running: set[Run],
    ) -> None:
        super().__init__(raw, out_avals)
        self.running = running
        self.host_functions = list(host_functions)

    def execute(self, args: Sequence[Buffer], run: Run | None = None) -> list[Buffer]:
        """Run the program to its end; what a function raises comes out as it is."""
        refuse_if_forked()
        require_alive(args)
        run = run or Run()
        self.running.add(run)
        try:
            with interruptible(run):
                results = self.raw.execute_sharded(args, with_tokens=True)
                results.consume_token().block_until_ready()
                outs: list[Buffer] = results.consume_with_handlers(self.handlers)
                return outs
        except (xla.JaxRuntimeError, KeyboardInterrupt) as error:
            failed: BaseException = error
        finally:
            self.running.discard(run)
        # Not within the handler, where XLA's error would become its context.
        tell_failure(self.host_functions)
        raise raised_by(failed) or failed


def hlo_text(text: str) -> str:
    """StableHLO text as XLA's own, as it is before anything is optimised."""
    computation = xla.mlir.mlir_module_to_xla_computation(text, False, False)
    return str(computation.get_hlo_module().to_string())


def compile_text(
    text: str,
    out_avals: Sequence[AvalLike],
    *,
    options: CompileChoices | None = None,
    host_functions: Sequence[HostFunction] = (),
) -> Executable:
    """Compile StableHLO text; results carry the given avals, and the program may call the functions by number."""
    refuse_if_forked()
    client = default_client()
    asked = options or NO_CHOICES
    if client.platform == "cuda":
        asked = without_annotator(asked, text)
    choices = compile_options(asked, client.platform, client.device.id)
    load = client.raw.compile_and_load
    try:
        if not host_functions:
            return Executable(_loaded_or_compiled(text, client, choices), out_avals)
        running: set[Run] = set()
        functions = [attached(fun, running) for fun in host_functions]
        raw = load(lazy.module(text), client.device_list, choices, host_callbacks=functions)
        count(compiled=1)
        return CallingExecutable(raw, out_avals, host_functions, running)
    except xla.JaxRuntimeError as error:
        found = re.search("(No such compile option|While setting option).*", str(error))
        if options and options.overrides and found:
            raise ValueError(f"compiler_options: XLA says: {found[0]}") from None
        raise RuntimeError(_compile_message(str(error), text)) from None


def _beside(make: Callable[[], Any]) -> Any:
    """What `make` gives, made in another thread than the main one, in which Ctrl-C may end the waiting for it.

    An exception of a signal within jaxlib's compilation of text damages the process (0.10.2, 0.12).
    """
    if threading.current_thread() is not threading.main_thread():
        return make()
    made: list[Any] = []
    failed: list[BaseException] = []

    def work() -> None:
        try:
            made.append(make())
        except BaseException as error:
            failed.append(error)

    thread = threading.Thread(target=work, name="fiveloop compiles")
    thread.start()
    thread.join()
    if failed:
        raise failed[0]
    return made[0]


def _loaded_or_compiled(text: str, client: Client, choices: Any) -> Any:
    """The program from the compilation cache, if there is one and it is there; else compiled, and kept there."""
    cache = active_cache()
    key = cache_key(text, choices.SerializeAsString(), client) if cache else ""
    found = cache.find(key) if cache else None
    if cache and found is not None:
        try:
            raw = client.raw.deserialize_executable(found, client.device_list, choices)
            count(loaded=1)
            return raw
        except xla.JaxRuntimeError as error:
            cache.report_damaged(key, str(error))

    def load(program: Any) -> Any:
        return client.raw.compile_and_load(program, client.device_list, choices)

    raw = _beside(lambda: lazy.MODULES.compiled(text, load))
    count(compiled=1)
    if cache:
        with suppress(xla.JaxRuntimeError):  # not every platform can save every program
            cache.add(key, client.raw.serialize_executable(raw))
    return raw


def cache_key(text: str, options: bytes, client: Client) -> str:
    """What an entry depends on, as a name: the program, how it is compiled, and the machine that runs it."""
    parts = [text.encode(), options, *[str(part).encode() for part in _machine(client)]]
    digest = lazy.hashlib().sha256()
    for part in parts:
        digest.update(b"%d:" % len(part))
        digest.update(part)
    return str(digest.hexdigest())


@cache
def _machine(client: Client) -> tuple[object, ...]:
    """The version of jaxlib, the device, and the instructions that its processor knows."""
    kind = (version, client.platform, client.raw.platform_version, client.device.device_kind)
    if client.platform != "cpu":
        return kind
    return (*kind, xla.get_topology_for_devices([client.device]).fingerprint(), _instruction_sets())


def _instruction_sets() -> str:
    """The instruction sets of the first processor, from Linux; empty elsewhere."""
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as lines:
            return next((line for line in lines if line.startswith(("flags", "Features"))), "")
    except OSError:
        return ""


def _compile_message(message: str, text: str) -> str:
    lines = text.splitlines()
    numbered = "\n".join([f"{i:5d}  {line}" for i, line in enumerate(lines[:400], 1)])
    more = f"\n       ... {len(lines) - 400} more lines" if len(lines) > 400 else ""
    clean = re.sub(r"(?:/[\w.+-]+)+/([\w.+-]+)", r"\1", message)
    return f"XLA could not compile a program: {clean}\nThe program:\n{numbered}{more}"
