"""The columns: a table for each transform, and `define`, the call that fills the row of a primitive."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from fiveloop.core import errors, ir
from fiveloop.core.dataclass import dataclass, field

if TYPE_CHECKING:
    from fiveloop.core import ad
    from fiveloop.core.arrays.array import Value
    from fiveloop.core.arrays.sharing import Turn
    from fiveloop.core.backend.client import Buffer
    from fiveloop.core.backend.hlo import IRValue, IRValues
    from fiveloop.core.ir.jaxpr import Atom, Jaxpr
    from fiveloop.core.ir.source import Source
    from fiveloop.core.util import Mask

R = TypeVar("R")
P = TypeVar("P")


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether a value is saved for the staged half, recomputed there, or moved to another memory."""

    kind: str
    reason: str = ""

    @property
    def saves(self) -> bool:
        return self.kind != "recompute"


SAVE = Verdict("save")
RECOMPUTE = Verdict("recompute")


@dataclass(frozen=True, slots=True)
class Weigh(Verdict):
    """Save or recompute, whichever costs less; where no cut is made it saves.

    `memory_cost` is the cost of a byte saved, `compute_cost` that of an operation recomputed; a chain of recomputed
    equations may cost at most `share` of all that the body computes. With `heavy`, contractions, reductions and loops
    may be recomputed, too, and `compute_cost` is the cost of a nanosecond of estimated time.
    """

    kind: str = "weigh"
    memory_cost: float = 1.0
    compute_cost: float = 1.0
    share: float = 1.0
    heavy: bool = False


@dataclass(frozen=True, slots=True)
class Slots(Verdict):
    """For a loop: save no residuals but at most `slots` states, from which the backward pass recomputes the steps.

    Loops of unknown length within it save as many, and with `within` those of known length, too. With a `tape` of more
    than one step, the forward pass saves the state before each so many steps, and the backward pass holds the residuals
    of so many; then a loop has at most `slots * tape` steps.
    """

    kind: str = "slots"
    slots: int = 1
    tape: int = 1
    within: bool = False

    def __post_init__(self) -> None:
        for name in ("slots", "tape"):
            number = getattr(self, name)
            if type(number) is not int or number < 1:
                raise ValueError(f"Slots: {name} must be an integer above 0, got {number!r}")


MEMORIES = ("device", "pinned_host", "unpinned_host")
"""The memories that XLA knows by name."""


@dataclass(frozen=True, slots=True)
class Offload(Verdict):
    """Save in another memory: from `src`, the device, to `dst`, a memory of the host."""

    kind: str = field(default="offload", kw_only=True)
    reason: str = field(default="", kw_only=True)
    src: str = "device"
    dst: str = "pinned_host"

    def __post_init__(self) -> None:
        for name, memory in (("src", self.src), ("dst", self.dst)):
            if not isinstance(memory, str):
                raise TypeError(
                    f"Offload: {name} must be the name of a memory, such as 'pinned_host', got {memory!r}"
                    f"{errors.at_source(ir.user_source())}"
                )
            if memory not in MEMORIES:
                known = ", ".join(map(repr, MEMORIES))
                raise ValueError(
                    f"Offload: {name} must be one of {known}, got {memory!r}"
                    f"{errors.at_source(ir.user_source())}"
                )
            if (memory == "device") != (name == "src"):
                there = (
                    "'device'" if name == "src" else "a memory of the host, such as 'pinned_host'"
                )
                raise ValueError(
                    f"Offload: {name} must be {there}, got {memory!r}; values are computed on the device and moved to "
                    f"the host{errors.at_source(ir.user_source())}"
                )


@dataclass(slots=True)
class EqnSplit:
    """An equation cut in two.

    `known` equations run first; what they define is a residual where a `staged` equation uses it. Each output of the
    original equation is defined by one of them: by a staged one where `out_unknown` says so. The equations `again`
    recompute the other outputs, except those that are kept, from operands and residuals; None if `known` itself would
    have to run again.
    """

    known: list[ir.Eqn]
    staged: list[ir.Eqn]
    out_unknown: Mask
    again: list[ir.Eqn] | None = None


@dataclass(frozen=True, slots=True)
class Cost:
    """An estimate of an equation: operations, in units of an addition, and bytes moved.

    `again` says that the equation is cheap enough to be recomputed instead of keeping its results: it works element
    by element, or only moves elements. Contractions, reductions, sorts, gathers and loops are not.
    """

    flops: int
    bytes: int
    again: bool = False


@dataclass(slots=True)
class Body:
    """A jaxpr among an equation's params: its role and how often it runs.

    `plain` says that the equation only runs its bodies, also under batching. Then the last binders of a body stand
    for the last operands. Binders before these, such as a counter, are the same in all lanes; operands before these
    choose the body that runs. The results of a "loop" are its binders from `carry` on in the next step; a "condition"
    decides whether there is a next step. If an operand is a Ref inside of the bodies alone, its final contents follow
    the other results. A "recomputed" body is kept apart from the "checkpointed" body with the same `origin`. Of the
    states of a loop, `slots` are saved at a time; the others are recomputed from these. The number of steps of an
    `open` loop is not known: its body runs `trips` times for each of them. What the inputs at `saved` hold is saved in
    some steps. What all steps use may be made before a loop for so many `turns`, in so much `room`. Some
    count `down`.
    """

    jaxpr: Jaxpr
    role: str
    trips: int = 1
    plain: bool = False
    carry: int = 0
    origin: object = None
    slots: int = 0
    open: bool = False
    saved: tuple[int, ...] = ()
    turns: int = 0
    room: float = 0.0
    down: bool = False


@dataclass(frozen=True)
class Refusal:
    """A cell that says that there is no rule; its text completes "`name` has no jvp: ..." and names what to do instead.

    >>> seal_p, no = Primitive("seal"), Refusal("unseal it first")
    >>> types = pure(lambda avals, p: avals)
    >>> define(seal_p, abstract_eval=types, lower=lambda ctx, xs, p: list(xs), jvp=no, batch=no)
    >>> grad(lambda x: bind1(seal_p, x))(1.0)
    Traceback (most recent call last):
    fiveloop.core.errors.RuleError: `seal` has no jvp: unseal it first
      at ...
    """

    why: str


COLUMNS: list[RuleTable[Any]] = []
"""Every column, in the order in which they were made: a package's own come after core's."""


class RuleTable(dict[ir.Primitive[Any], R]):
    """A column: the rules of a transform, by primitive; `by` is the call that fills a cell.

    Cells are rules, or facts: values other than functions, such as True. Refusals are kept beside them, so that an
    engine gets a rule without a call of Python: it asks for several in each operation.
    """

    __slots__ = ("_refusals", "by", "column", "default")

    def __init__(self, column: str, *, default: str = "", by: str = "") -> None:
        super().__init__()
        self.column = column
        self.default = default
        self.by = by or f"define(..., {column}=...)"
        self._refusals: dict[ir.Primitive[Any], Refusal] = {}
        COLUMNS.append(self)

    def define(self, prim: ir.Primitive[Any], cell: R | Refusal) -> None:
        """Fill a cell, once."""
        if self.cell(prim) is not None:
            raise errors.RuleError(
                f"the {self.column} rule of `{prim}` is defined twice; a package may add cells, not alter them"
            )
        if isinstance(cell, Refusal):
            self._refusals[prim] = cell
        else:
            self[prim] = cell

    def __missing__(self, prim: ir.Primitive[Any]) -> R:
        refusal = self._refusals.get(prim)
        if refusal is not None:
            raise errors.RuleError(f"`{prim}` has no {self.column}: {refusal.why}")
        raise errors.RuleError(f"`{prim}` has no {self.column} rule; give it one with `{self.by}`")

    def find(self, prim: ir.Primitive[Any]) -> R | None:
        """The rule, or None where the engine's default applies; a refusal is still an error, unlike with `get`."""
        found = self.get(prim)
        return self[prim] if found is None and prim in self._refusals else found

    def cell(self, prim: ir.Primitive[Any]) -> R | Refusal | None:
        """The text of a cell, for `inspect`."""
        return self.get(prim, self._refusals.get(prim))

    def __contains__(self, prim: object) -> bool:
        return super().__contains__(prim) or prim in self._refusals


if TYPE_CHECKING:
    # What a cell of each column is: a function of these positional arguments, the last of which are the params.
    AbstractEval = Callable[[ir.Avals, Any], ir.Typing]
    Lower = Callable[[Any, IRValues, Any], list[IRValue]]
    Impl = Callable[[ad.Values, Any], list[Value]]
    Jvp = Callable[[ad.Values, ad.Tangents, Any], ad.Duals]
    Transpose = Callable[[ad.Tangents, ad.Operands, Any], Sequence[ad.Tangent | ad.Total | None]]
    Batch = Callable[[int, ad.Values, ad.BatchAxes, Any], ad.Batched]
    Split = Callable[[Any, Sequence[bool], Sequence[bool], ir.Eqn], EqnSplit]
    Dce = Callable[[Sequence[bool], ir.Eqn], tuple[list[bool], ir.Eqn | None]]
    CostRule = Callable[[ir.Avals, Any], Cost]
    Bodies = Callable[[Any], list[Body]]
    WrittenOut = Callable[[ir.Avals, Any], Jaxpr]


abstract_eval_rules: RuleTable[AbstractEval] = RuleTable("abstract_eval")
lower_rules: RuleTable[Lower] = RuleTable("lower")
impl_rules: RuleTable[Impl] = RuleTable("impl", default="compile and run the equation")
typecheck_rules: RuleTable[AbstractEval] = RuleTable("typecheck", default="abstract_eval, compared")
jvp_rules: RuleTable[Jvp] = RuleTable("jvp")
transpose_rules: RuleTable[Transpose] = RuleTable("transpose", default="refused: not linear")
batch_rules: RuleTable[Batch] = RuleTable("batch")
split_rules: RuleTable[Split] = RuleTable("split", default="known if all operands are")
dce_rules: RuleTable[Dce] = RuleTable("dce", default="drop if unused and free of effects")
cost_rules: RuleTable[CostRule] = RuleTable(
    "cost", default="from the bodies, the jaxpr written out, or the types"
)
bodies_rules: RuleTable[Bodies] = RuleTable("bodies", default="none")
written_out_rules: RuleTable[WrittenOut] = RuleTable("written_out", default="none: one operation")
by_element_rules: RuleTable[bool] = RuleTable(
    "by_element", default="no, elements may depend on others"
)
view_rules: RuleTable[bool | Callable[[Any], bool]] = RuleTable(
    "view", default="no, elements are computed"
)
reads_elements_rules: RuleTable[Callable[[Any], bool]] = RuleTable(
    "reads_elements", default="no, operands are read as a whole"
)
label_rules: RuleTable[Callable[[Any], str]] = RuleTable("label", default="none")


def is_view(eqn: ir.Eqn) -> bool:
    """Whether an equation only picks, repeats or rearranges elements that lie in blocks."""
    cell = view_rules.find(eqn.primitive)
    return cell(eqn.params) if callable(cell) else cell is True


def plain_bodies(prim: ir.Primitive[Any], params: Any) -> list[Body]:
    """The bodies of an equation that does nothing but run them; none of any other."""
    rule = bodies_rules.get(prim)
    if rule is None:
        return []
    bodies = rule(params)
    return bodies if all(b.plain for b in bodies) else []


def bodies_of(eqn: ir.Eqn) -> list[Body]:
    """The bodies of an equation that runs jaxprs; none of any other."""
    rule = bodies_rules.find(eqn.primitive)
    return rule(eqn.params) if rule else []


def is_loop(eqn: ir.Eqn) -> bool:
    """Whether an equation runs a jaxpr several times."""
    return any(body.role == "loop" for body in bodies_of(eqn))


def holds_loop(jaxpr: ir.Jaxpr) -> bool:
    """Whether there is a loop in a jaxpr, at any depth."""
    return any(is_loop(e) or any(map(holds_loop, ir.jaxprs_in(e.params))) for e in jaxpr.eqns)


NOT_LINEAR = Refusal("it is not linear; differentiate it first (`jvp`, `linearize`)")


def define(
    prim: ir.Primitive[P],
    *,
    abstract_eval: Callable[[ir.Avals, P], ir.Typing],
    lower: Lower | Refusal,
    jvp: Jvp | Refusal,
    batch: Batch | Refusal,
    transpose: Transpose | Refusal = NOT_LINEAR,
    impl: Impl | None = None,
    typecheck: AbstractEval | None = None,
    split: Split | None = None,
    dce: Dce | None = None,
    cost: CostRule | None = None,
    bodies: Bodies | None = None,
    written_out: WrittenOut | None = None,
    by_element: bool | None = None,
    view: bool | Callable[[P], bool] | None = None,
    reads_elements: Callable[[P], bool] | None = None,
    label: Callable[[P], str] | None = None,
) -> None:
    """Fill a primitive's row. The required cells have no default, so that none is forgotten.

    A cell is a rule, or a `Refusal` that says why there is none. RuleError if the primitive has a row already.
    `written_out` gives the jaxpr of other primitives that `lower` writes in place of the equation; what an equation
    costs and how much memory it needs is told from it.
    `by_element` is a fact: each element of a result depends on the elements of the operands at its place alone. `view`
    is one, or says it of params: the primitive only picks, repeats or rearranges elements that lie in blocks, so that
    it costs less to recompute than to save its result.
    `reads_elements` says of params whether some elements of the first operand are read: then `transpose` adds to a
    cotangent that is `held`, in place, and gives the `Total`.
    `label` makes the result the operand itself under a name, which policies of checkpoints know.

    >>> twice_p = Primitive("twice")
    >>> define(
    ...     twice_p,
    ...     abstract_eval=pure(lambda avals, p: avals),
    ...     lower=lambda ctx, operands, p: [hlo.add(ctx.b, operands[0], operands[0])],
    ...     jvp=lambda primals, tangents, p: (bind(twice_p, *primals), bind(twice_p, *tangents)),
    ...     batch=lambda size, operands, dims, p: (bind(twice_p, *operands), list(dims)),
    ...     transpose=lambda cts, operands, p: bind(twice_p, *cts),
    ... )
    >>> def twice(x):
    ...     return bind1(twice_p, as_value(x, "twice: x"))
    >>> jit(twice)(3.0).item(), grad(twice)(3.0).item(), vmap(twice)(np.ones(2))
    (6.0, 2.0, Array([2., 2.], dtype=float64))
    """
    abstract_eval_rules.define(prim, abstract_eval)
    lower_rules.define(prim, lower)
    jvp_rules.define(prim, jvp)
    batch_rules.define(prim, batch)
    transpose_rules.define(prim, transpose)
    optional: list[tuple[RuleTable[Any], Any]] = [
        (impl_rules, impl),
        (typecheck_rules, typecheck),
        (split_rules, split),
        (dce_rules, dce),
        (cost_rules, cost),
        (bodies_rules, bodies),
        (written_out_rules, written_out),
        (by_element_rules, by_element),
        (view_rules, view),
        (reads_elements_rules, reads_elements),
        (label_rules, label),
    ]
    for table, cell in optional:
        if cell is not None:
            table.define(prim, cell)


@dataclass(frozen=True, slots=True)
class PureAbstractEval(Generic[P]):
    """An abstract_eval without effects, whatever the types."""

    types: Callable[[ir.Avals, P], ir.Avals]

    def __call__(self, avals: ir.Avals, p: P, /) -> ir.Typing:
        return list(self.types(avals, p)), ir.NO_EFFECTS


def pure(abstract_eval: Callable[[ir.Avals, P], ir.Avals]) -> Callable[[ir.Avals, P], ir.Typing]:
    """An abstract_eval without effects, from a function that returns only the types.

    >>> same_types = pure(lambda avals, p: avals)
    >>> same_types([ShapedArray((2,), np.float32)], NO_PARAMS)
    ([f32[2]], frozenset())
    """
    return PureAbstractEval(abstract_eval)


def is_pure(prim: ir.Primitive[Any]) -> bool:
    """Whether no equation of a primitive has an effect."""
    return isinstance(abstract_eval_rules.cell(prim), PureAbstractEval)


@dataclass(frozen=True)
class TypeRules:
    """The rules of one kind of type; `define_type` registers them.

    All types: `zeros(aval)`, a value that is zero everywhere; `add(x, y)`, a sum; `getitem(x, index)` and
    `setitem(x, index, value)`, indexing; `buffer(x)`, the buffer that a concrete value passes to a program;
    `own_buffer(x)`, the buffer that it passes to a program that updates it in place; `write_back(x, new)` gives it new
    contents; `turn(x)`, the lock of a mutable value.

    Types that accumulate: `new_accumulator(aval)`; `accumulated(x)`, the final contents of an accumulator;
    `holding(value)`, an accumulator that holds `value`; and `accumulate(x, value, spans)`, which adds to the whole
    contents or, with a `(start, size, stride)` for each axis, to a block.

    `methods` are the type's own methods and attributes: `x.name` of a value `x`, by name.

    >>> rules, x = type_rules(ShapedArray((3,), np.float32)), as_value(np.ones(3, np.float32))
    >>> print(rules.zeros(x.aval), rules.add(x, x), rules.getitem(x, 1))
    [0. 0. 0.] [2. 2. 2.] 1.0
    """

    zeros: Callable[[ir.Aval], Value]
    add: Callable[[Value, Value], Value]
    getitem: Callable[[Any, Any], Any]
    setitem: Callable[[Any, Any, Any], None]
    buffer: Callable[[Any], Buffer]
    own_buffer: Callable[[Any], Buffer]
    write_back: Callable[[Any, Value], None]
    turn: Callable[[Any], Turn]
    new_accumulator: Callable[[ir.Aval], Value] | None = None
    accumulated: Callable[[Value], Value] | None = None
    holding: Callable[[Value], Value] | None = None
    accumulate: Callable[..., None] | None = None
    methods: Mapping[str, Callable[..., Any]] = field(default_factory=dict)


_TYPES: dict[type[ir.Aval], TypeRules] = {}


def define_type(kind: type[ir.Aval], rules: TypeRules) -> None:
    """Register the rules of a kind of type; RuleError if it has rules already.

    The types of core's arrays and of the Refs of `fiveloop.state` are registered so. `TypeRules` describes the rules.

    >>> class Switch(Aval):
    ...     shape, dtype, weak_type = (), np.dtype(bool), False
    >>> define_type(Switch, type_rules(ShapedArray((), bool)))
    >>> zeros_of(Switch()).item()
    False
    """
    if kind in _TYPES:
        raise errors.RuleError(f"the type rules of {kind.__name__} are defined twice")
    _TYPES[kind] = rules


def type_rules(aval: ir.Aval) -> TypeRules:
    """The rules of a type; KeyError if `define_type` was not called for it.

    >>> rules = type_rules(ShapedArray((2,), np.float32))
    >>> print(rules.add(as_value(1.0), as_value(2.0)), rules.new_accumulator)
    3.0 None
    """
    return _TYPES[type(aval)]


def own_method(name: str, otherwise: Callable[..., Any]) -> Callable[..., Any]:
    """A method that is the type's own, of a value of a type that has one of this name."""

    def method(x: Value, *args: Any) -> Any:
        return type_rules(x.aval).methods.get(name, otherwise)(x, *args)

    return method


def new_eqn(
    prim: ir.Primitive[Any],
    invars: Sequence[Atom],
    params: Any,
    outvars: ir.Vars | None = None,
    source: Source | None = None,
) -> ir.Eqn:
    """An equation whose types and effects are those of its abstract_eval; new output variables unless given.

    >>> x = Var(ShapedArray((3,), np.float32))
    >>> eqn = new_eqn(add_p, [x, x], NO_PARAMS)
    >>> print(Jaxpr([x], [eqn], eqn.outvars))
    { lambda a:f32[3] ; let
        b:f32[3] = add a a
      in (b,) }
    """
    avals, effects = abstract_eval_rules[prim]([a.aval for a in invars], params)
    outs = list(map(ir.Var, avals)) if outvars is None else outvars
    return ir.Eqn(prim, invars, outs, params, effects, source)


def with_bodies(eqn: ir.Eqn, change: Callable[[Jaxpr], Jaxpr]) -> ir.Eqn:
    """The equation with `change` of each jaxpr among its params; itself if these stay as they are."""
    params = ir.with_jaxprs(eqn.params, change)
    if params is eqn.params:
        return eqn
    return new_eqn(eqn.primitive, eqn.invars, params, eqn.outvars, eqn.source)
