"""The error messages about Refs."""

from __future__ import annotations

from fiveloop.core import errors, trace


def not_made() -> TypeError:
    """`Ref` was called."""
    return TypeError(
        "Ref: expected a type's use, in an annotation or in `isinstance`, got a call; make a Ref with `new_ref(x)` or "
        f"`empty_ref(shape, dtype)`{errors.at_source(trace.current_source())}"
    )


def not_differentiated(what: str) -> TypeError:
    """A differentiated value went into a Ref that is constant under the derivative."""
    return TypeError(
        f"{what}: a value under differentiation is written to a Ref that is not differentiated, so its derivative "
        f"would be lost; pass the Ref's contents into the differentiated function and make the Ref there, or write "
        f"`stop_gradient(x)`{errors.at_source(trace.current_source())}"
    )


def not_batched(what: str) -> TypeError:
    """Different values of a batch went into one Ref."""
    return TypeError(
        f"{what}: each lane of a vmap writes its own value to a Ref that all lanes share, so the last would win; "
        f"pass the Ref through `vmap` with an in_axis of its own, make it inside the function, or accumulate "
        f"with `+=`, which adds up the lanes{errors.at_source(trace.current_source())}"
    )


def frozen(aval: object, where: object) -> errors.FrozenRefError:
    """A Ref was used after `freeze`."""
    return errors.FrozenRefError(
        f"the Ref of type {aval} was used after it had been frozen at {where}; use the array that `freeze` "
        f"returned{errors.at_source(trace.current_source())}"
    )


def not_frozen(aval: object, what: str, advice: str) -> TypeError:
    """A Ref was frozen by someone who did not make it."""
    return TypeError(
        f"freeze: expected a Ref that was made here, got one of type {aval}, which is {what}; {advice}"
        f"{errors.at_source(trace.current_source())}"
    )


def lost(aval: object) -> RuntimeError:
    """A Ref was used whose memory went to a program that did not give it back."""
    return RuntimeError(
        f"the Ref of type {aval} has lost its contents: a program that was updating it in place failed, or an array "
        f"that shared its memory was donated; make a new Ref with new_ref{errors.at_source(trace.current_source())}"
    )
