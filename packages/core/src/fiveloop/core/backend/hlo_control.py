"""StableHLO operations with control flow, and those that stand between values and the outside."""

from collections.abc import Callable, Sequence

from .hlo_builder import Builder, IRValue, TypeSpec, generic, names, tensor_type, type_list, types
from .options import jaxlib_version


def while_(
    b: Builder,
    init: Sequence[IRValue],
    cond: Callable[[list[IRValue]], IRValue],
    body: Callable[[list[IRValue]], list[IRValue]],
) -> list[IRValue]:
    """Run `body` on the carried values as long as `cond` of them holds."""
    specs: list[TypeSpec] = [(v.shape, v.dtype) for v in init]
    args = b.region_args(specs)
    cond_text, _ = b.region(lambda: [cond(args)])
    body_text, outs = b.region(lambda: body(args))
    _require_types("while body", outs, specs)
    heads = ", ".join([f"{a.name} = {v.name}" for a, v in zip(args, init, strict=True)])
    text = f"stablehlo.while({heads}) : {types(init)}\n{b.indent}cond {cond_text} do {body_text}"
    return b.emit_many(text, specs)


def if_(
    b: Builder,
    pred: IRValue,
    then: Callable[[], list[IRValue]],
    else_: Callable[[], list[IRValue]],
    results: Sequence[TypeSpec],
) -> list[IRValue]:
    """The results of one of two branches, by a scalar predicate."""
    return _branches(b, "stablehlo.if", pred, [then, else_], results)


def case(
    b: Builder,
    index: IRValue,
    branches: Sequence[Callable[[], list[IRValue]]],
    results: Sequence[TypeSpec],
) -> list[IRValue]:
    """The results of one branch of many, by a scalar i32; an index out of range takes the last."""
    return _branches(b, "stablehlo.case", index, branches, results)


def _branches(
    b: Builder,
    op: str,
    chosen: IRValue,
    branches: Sequence[Callable[[], list[IRValue]]],
    results: Sequence[TypeSpec],
) -> list[IRValue]:
    texts = []
    for k, branch in enumerate(branches):
        text, outs = b.region(branch)
        _require_types(f"{op} branch {k}", outs, results)
        texts.append(text)
    return generic(b, op, [chosen], results, regions=texts)


def optimization_barrier(b: Builder, xs: Sequence[IRValue]) -> list[IRValue]:
    """The same values, which XLA may not compute before all of them are asked for."""
    if not xs:
        return []
    specs: list[TypeSpec] = [(x.shape, x.dtype) for x in xs]
    return b.emit_many(f"stablehlo.optimization_barrier {names(xs)} : {types(xs)}", specs)


def as_stored(b: Builder, xs: Sequence[IRValue]) -> list[IRValue]:
    """The same values, rounded as if they had been stored: x + 1 + 1 does not become x + 2 across this.

    From jaxlib 0.12 on XLA does not do that, and keeps the barrier longer, which would cost there.
    """
    floats = [x for x in xs if x.dtype.kind not in "biu"]
    if jaxlib_version() >= (0, 12) or not floats:
        return list(xs)
    stored = iter(optimization_barrier(b, floats))
    return [x if x.dtype.kind in "biu" else next(stored) for x in xs]


def custom_call(
    b: Builder,
    target: str,
    operands: Sequence[IRValue],
    results: Sequence[TypeSpec],
    attrs: str = "",
) -> list[IRValue]:
    """A call of a function registered with XLA; `attrs` is the text between its braces."""
    braces = f" {{{attrs}}}" if attrs else ""
    out_types = type_list([tensor_type(shape, dtype) for shape, dtype in results])
    signature = f"({types(operands)}) -> {out_types}"
    text = f"stablehlo.custom_call @{target}({names(operands)}){braces} : {signature}"
    return b.emit_many(text, results)


def _require_types(where: str, outs: Sequence[IRValue], specs: Sequence[TypeSpec]) -> None:
    got = [v.type for v in outs]
    expected = [tensor_type(shape, dtype) for shape, dtype in specs]
    if got != expected:
        raise TypeError(f"hlo {where}: expected results {expected}, got {got}")
