"""The printer: a jaxpr as text, with short names that are stable, nested jaxprs in place, and effects by name."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import MISSING, Field
from string import ascii_lowercase
from typing import Any

import numpy as np

from fiveloop.core.dataclass import dataclass, fields, is_dataclass
from fiveloop.core.ir import jaxpr as ir
from fiveloop.core.ir.avals import short_dtype

WIDTH = 100
_DEFAULT_DTYPES = frozenset(map(np.dtype, ("bool", "int32", "float32", "complex64")))


def format_jaxpr(jaxpr: ir.Jaxpr, *, source: bool = False) -> str:
    """A jaxpr as text; with `source`, each equation ends with the user's line that it comes from.

    >>> def square(x):
    ...     return x * x
    >>> print(format_jaxpr(make_jaxpr(square)(1.0), source=True))
    { lambda a:f32*[] ; let
        b:f32*[] = mul a a  # ...
      in (b,) }
    """
    writer = _Writer(Names(ir.all_atoms(jaxpr)), source)
    return "\n".join(writer.jaxpr(jaxpr, consts=True))


def format_eqn(eqn: ir.Eqn, *, source: bool = False) -> str:
    """One equation as text, with names of its own."""
    alone = ir.Jaxpr((), (eqn,), eqn.outvars, effects=ir.NO_EFFECTS)
    names = Names(ir.all_atoms(alone))
    for atom in eqn.invars:
        names.atom(atom)
    return "\n".join(_Writer(names, source).eqn(eqn))


class Names:
    """The names of variables and constants in one print: a, b, ..., z, aa, ... in the order of printing.

    A variable that nothing uses is `_`; an array constant is `c0`, `c1`, ... by identity.
    """

    def __init__(self, atoms: Iterable[ir.Atom]) -> None:
        self._fresh = _short_names()
        self._vars: dict[ir.Var, str] = {}
        self._consts: dict[int, tuple[str, ir.Literal]] = {}
        self._used: set[ir.Var] = set()
        for atom in atoms:
            if isinstance(atom, ir.Var):
                self._used.add(atom)
            elif not ir.is_scalar(atom):
                self.atom(atom)

    def atom(self, atom: ir.Atom) -> str:
        """An operand: a name, or a number."""
        if isinstance(atom, ir.Var):
            return self._var(atom)
        if ir.is_scalar(atom):
            return _number(atom)
        name = f"c{len(self._consts)}"
        return self._consts.setdefault(id(atom.value), (name, atom))[0]

    def binder(self, var: ir.Var) -> str:
        """A variable where it is bound: its name and its type."""
        name = self._var(var) if var in self._used else "_"
        return f"{name}:{var.aval}"

    def consts(self) -> list[str]:
        """The array constants: their names and types."""
        return [f"{name}:{literal.aval}" for name, literal in self._consts.values()]

    def effect(self, effect: ir.Effect, operands: ir.Atoms) -> str:
        """An effect by the name of the operand that it is on: `Read<r>`."""
        kind = type(effect).__name__.removesuffix("Effect")
        inside = [_value(x) for f, x in _given(effect) if f.name != "position"]
        if isinstance(effect, ir.PositionalEffect):
            inside.insert(0, self.atom(operands[effect.position]))
        return f"{kind}<{', '.join(inside)}>" if inside else kind

    def effects(self, effects: Iterable[ir.Effect], operands: ir.Atoms) -> list[str]:
        """Effects by name, in the order of their operands."""
        named = [(getattr(e, "position", -1), self.effect(e, operands)) for e in effects]
        return [name for _, name in sorted(named)]

    def _var(self, var: ir.Var) -> str:
        name = self._vars.get(var)
        if name is None:
            self._used.add(var)
            name = self._vars[var] = next(self._fresh)
        return name


EqnPrinter = Callable[[ir.Eqn, Names], str]
_eqn_printers: dict[ir.Primitive[Any], EqnPrinter] = {}


def define_printer(prim: ir.Primitive[Any], printer: EqnPrinter) -> None:
    """Register how equations of a primitive print, where `outs = name[params] operands` reads badly.

    `printer(eqn, names)` returns the text; `names` (see `Names`) has the names of the variables in this print. Jaxprs
    among the params are printed below the text.

    >>> mark_p = Primitive("mark")
    >>> define_printer(mark_p, lambda eqn, names: f"mark {names.atom(eqn.invars[0])} !")
    >>> x = Var(ShapedArray((2,), np.float32))
    >>> print(Jaxpr([x], [Eqn(mark_p, [x], [], NO_PARAMS)], [x]))
    { lambda a:f32[2] ; let
        mark a !
      in (a,) }
    """
    _eqn_printers[prim] = printer


def format_params(params: Any, *, skip: Iterable[str] = ()) -> str:
    """The fields of params that are not at their defaults and hold no jaxpr: `[axis=0 reverse=True]`."""
    shown = [
        f"{f.name}={_value(x)}"
        for f, x in _given(params)
        if f.name not in skip and not _jaxprs(f.name, x)
    ]
    return f"[{' '.join(shown)}]" if shown else ""


@dataclass
class _Writer:
    """Writes jaxprs and equations as lines."""

    names: Names
    source: bool

    def jaxpr(self, jaxpr: ir.Jaxpr, *, consts: bool = False) -> list[str]:
        """A jaxpr: its binders, constants and effects; its equations; its results."""
        head = [self.names.binder(v) for v in jaxpr.invars]
        parts = [["{ lambda", *head]]
        if consts and self.names.consts():
            parts.append(["consts", *self.names.consts()])
        if jaxpr.effects:
            parts.append(self.names.effects(jaxpr.effects, jaxpr.invars))
        words = [word for part in parts for word in (*part, ";")]
        body = [line for eqn in jaxpr.eqns for line in self.eqn(eqn)]
        outs = [self.names.atom(a) for a in jaxpr.outvars]
        result = f"({outs[0]},)" if len(outs) == 1 else f"({', '.join(outs)})"
        if not body:
            return _wrap([*words, "let", "in", *result.split(" "), "}"])
        lines = [*_wrap([*words, "let"]), *_indent(body, 4)]
        return lines + _indent(_wrap(["in", *result.split(" "), "}"]), 2)

    def eqn(self, eqn: ir.Eqn) -> list[str]:
        """An equation, with the jaxprs of its params indented below it."""
        printer = _eqn_printers.get(eqn.primitive)
        try:
            first = printer(eqn, self.names) if printer is not None else self._plain(eqn)
        except (IndexError, ValueError):  # operands are missing, which a message wants to show
            first = self._plain(eqn.replace(effects=ir.NO_EFFECTS))
        lines = _wrap(first.split(" "))
        if self.source and eqn.source is not None:
            lines[0] += f"  # {eqn.source}"
        for label, jaxpr in self._nested(eqn):
            inner = self.jaxpr(jaxpr)
            lines += _indent([f"{label} {inner[0]}", *inner[1:]], 2)
        return lines

    def _plain(self, eqn: ir.Eqn) -> str:
        operands = [self.names.atom(a) for a in eqn.invars]
        call = " ".join([f"{eqn.primitive}{format_params(eqn.params)}", *operands])
        if eqn.effects and not self._nested(eqn):
            call += " ! " + " ".join(self.names.effects(eqn.effects, eqn.invars))
        outs = " ".join(self.names.binder(v) for v in eqn.outvars)
        return f"{outs} = {call}" if outs else call

    def _nested(self, eqn: ir.Eqn) -> list[tuple[str, ir.Jaxpr]]:
        return [found for f, x in _given(eqn.params) for found in _jaxprs(f.name, x)]


def _short_names() -> Iterator[str]:
    length = 1
    while True:
        for k in range(26**length):
            yield "".join(ascii_lowercase[k // 26**d % 26] for d in reversed(range(length)))
        length += 1


def _wrap(words: Sequence[str]) -> list[str]:
    lines, current = [], ""
    for word in words:
        if current and len(current) + 1 + len(word) > WIDTH:
            lines.append(current)
            current = " " * 8 + word
        else:
            current = f"{current} {word}" if current else word
    return [*lines, current]


def _indent(lines: Iterable[str], by: int) -> list[str]:
    return [" " * by + line for line in lines]


def _number(literal: ir.Literal) -> str:
    host: np.ndarray[Any, Any] = literal.value.host  # type: ignore[attr-defined]  # `is_scalar` says so
    dtype = "" if host.dtype in _DEFAULT_DTYPES else f":{short_dtype(host.dtype)}"
    return f"{host[()]!s}{dtype}{'*' if literal.aval.weak_type else ''}"


def _given(x: Any) -> list[tuple[Field[Any], Any]]:
    """The fields of a dataclass that are not at their defaults, with what they hold; none of anything else."""
    held = [(f, getattr(x, f.name)) for f in fields(x)] if is_dataclass(x) else []
    return [(f, value) for f, value in held if not _is_default(f, value)]


def _is_default(field: Field[Any], value: Any) -> bool:
    default = field.default_factory() if field.default_factory is not MISSING else field.default
    if default is MISSING or type(default) is not type(value):
        return False
    return default is value or (not isinstance(value, np.ndarray) and bool(default == value))


def _jaxprs(label: str, value: Any) -> list[tuple[str, ir.Jaxpr]]:
    if isinstance(value, ir.Jaxpr):
        return [(label, value)]
    if isinstance(value, tuple) and any(isinstance(x, ir.Jaxpr) for x in value):
        return [(f"{label}[{i}]", x) for i, x in enumerate(value) if isinstance(x, ir.Jaxpr)]
    return []


def _value(value: Any) -> str:
    if isinstance(value, np.dtype):
        return short_dtype(value)
    if isinstance(value, np.ndarray):
        return f"{short_dtype(value.dtype)}[{','.join(map(str, value.shape))}]"
    if isinstance(value, (tuple, list)):
        inner = ", ".join(map(_value, value))
        return f"({inner},)" if len(value) == 1 else f"({inner})"
    kind: Any = type(value)
    if is_dataclass(value) and kind is not type and kind.__str__ is object.__str__:
        inside = [f"{f.name}={_value(x)}" for f, x in _given(value) if f.repr]
        return f"{kind.__name__}({', '.join(inside)})"
    return str(getattr(value, "__name__", value))


ir.PRINTERS[ir.Jaxpr] = format_jaxpr
ir.PRINTERS[ir.Eqn] = format_eqn
