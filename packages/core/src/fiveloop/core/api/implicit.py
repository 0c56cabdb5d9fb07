"""Root finding and linear solves, differentiated through the equation and not through the solver."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Literal, TypeVar, overload

from fiveloop.core import ad, ir, prims, pytree, trace
from fiveloop.core.api import custom_function, flat_function, flatten
from fiveloop.core.arrays import Value
from fiveloop.core.custom_rule import implicit as rules
from fiveloop.core.dataclass import dataclass, field
from fiveloop.core.util import R, T

Aux = TypeVar("Aux")
No = Literal[False]
Yes = Literal[True]
Map = Callable[[T], T]
Solve = Callable[[Map[T], T], R]
Solver = Solve[Any, Any]


@overload
def custom_root(
    f: Map[T], initial_guess: T, solve: Solve[T, T], tangent_solve: Solver, has_aux: No = False
) -> T: ...
@overload
def custom_root(
    f: Map[T], initial_guess: T, solve: Solve[T, tuple[T, Aux]], tangent_solve: Solver, has_aux: Yes
) -> tuple[T, Aux]: ...
@trace.boundary
def custom_root(
    f: Callable[[Any], Any],
    initial_guess: Any,
    solve: Solver,
    tangent_solve: Solver,
    has_aux: bool = False,
) -> Any:
    """The root of `f` that `solve(f, initial_guess)` finds, with the derivative of the implicit function theorem.

    It is differentiated with respect to what `f` closes over, and not to the guess. `tangent_solve(g, y)` solves
    `g(x) = y` for a linear `g`; it must be linear in `y`, so that reverse mode can transpose it. With `has_aux`,
    `solve` returns a pair, whose second part has no derivative.

    >>> def sqrt(a):
    ...     newton = lambda f, x: [x := x - f(x) / (2.0 * x) for _ in range(20)][-1]
    ...     return custom_root(lambda x: x * x - a, 1.0, newton, lambda g, y: y / g(1.0))
    >>> sqrt(4.0)
    Array(2., dtype=float32)
    """
    for what, given in (("f", f), ("solve", solve), ("tangent_solve", tangent_solve)):
        flatten.check_callable(f"custom_root: {what}", given)
    guess, tree = flatten.flatten_values(initial_guess, "custom_root: initial_guess")
    system = _Unknown("custom_root", "f", f, tree, guess, "initial_guess")
    name = flatten.function_name(f)
    call = custom_function.Call(solve, name, {}, tree, system.flat)
    solver = system.solver(solve, "solve", has_aux)
    tangent_solver = system.solver(tangent_solve, "tangent_solve")
    params, jaxpr = system.params, system.jaxpr

    def run(*values: Value) -> list[Value]:
        held, start = values[: len(params)], values[len(params) :]
        return solver(rules.applied(jaxpr, held), start)

    def probe(*values: Value) -> list[Value]:
        return tangent_solver(list, values[len(params) :])

    call.flat = run  # type: ignore[assignment]  # all that is done with it is to call it
    owner = _Owner("custom_root", [solve, tangent_solve])
    make_rule = partial(
        rules.RootRule, run, f=jaxpr, num_params=len(params), tangent_solve=tangent_solver
    )
    leaves = custom_function.run_custom(call, [*params, *guess], make_rule, probe, owner)
    return system.result(leaves)


@overload
def custom_linear_solve(
    matvec: Map[T],
    b: T,
    solve: Solve[T, T],
    transpose_solve: Solver | None = None,
    symmetric: bool = False,
    has_aux: No = False,
) -> T: ...
@overload
def custom_linear_solve(
    matvec: Map[T],
    b: T,
    solve: Solve[T, tuple[T, Aux]],
    transpose_solve: Solver | None = None,
    symmetric: bool = False,
    *,
    has_aux: Yes,
) -> tuple[T, Aux]: ...
@trace.boundary
def custom_linear_solve(
    matvec: Callable[[Any], Any],
    b: Any,
    solve: Solver,
    transpose_solve: Solver | None = None,
    symmetric: bool = False,
    has_aux: bool = False,
) -> Any:
    """The solution of `matvec(x) = b` that `solve(matvec, b)` finds, differentiated through the equation.

    `matvec` must be linear. It and the solvers must preserve structure, shapes and dtypes; a TypeError names the
    function that does not. `transpose_solve(vecmat, y)` solves the transposed system, for reverse mode; with
    `symmetric` it is `solve`. Derivatives are with respect to `b` and to the values that `matvec` closes over;
    solvers may close over any value. With `has_aux`, the solvers return a pair, whose second part has no derivative.

    >>> custom_linear_solve(lambda x: 4.0 * x, 2.0, lambda f, b: b / f(1.0), symmetric=True)
    Array(0.5, dtype=float32)
    """
    flatten.check_callable("custom_linear_solve: matvec", matvec)
    flatten.check_callable("custom_linear_solve: solve", solve)
    if transpose_solve is not None:
        flatten.check_callable("custom_linear_solve: transpose_solve", transpose_solve)
    values, tree = flatten.flatten_values(b, "custom_linear_solve: b")
    unknown = _Unknown("custom_linear_solve", "matvec", matvec, tree, values, "b")
    call = custom_function.Call(solve, flatten.function_name(matvec), {}, tree, unknown.flat)
    solver = unknown.solver(solve, "solve", has_aux)
    num = len(unknown.params)
    transposed: rules.Solver | None = None
    vecmat = None
    if symmetric or transpose_solve is not None:
        vecmat = unknown.jaxpr if symmetric else rules.transposed_operator(unknown.jaxpr, num)
        transposed = solver
        if transpose_solve is not None:
            transposed = unknown.solver(transpose_solve, "transpose_solve", has_aux)
    system = rules.System(unknown.jaxpr, solver, vecmat, transposed)

    def run(*values: Value) -> list[Value]:
        return solver(rules.applied(unknown.jaxpr, values[:num]), values[num:])

    def probe(*values: Value) -> list[Value]:
        if transposed is None or vecmat is None:
            return []
        return transposed(rules.applied(vecmat, values[:num]), values[num:])

    call.flat = run  # type: ignore[assignment]  # all that is done with it is to call it
    owner = _Owner("custom_linear_solve", [solve, transpose_solve])
    make_rule = partial(rules.SolveRule, system, num_params=num)
    leaves = custom_function.run_custom(call, [*unknown.params, *values], make_rule, probe, owner)
    if transpose_solve is not None:
        unknown.check_now("transpose_solve", lambda *xs: probe(*unknown.params, *xs))
    return unknown.result(leaves)


@dataclass(eq=False)
class _Owner:
    """Whose rule it is, and the functions that it consists of."""

    what: str
    functions: list[Any]
    staged = False

    def closed_parts(self) -> list[Any]:
        """The functions, which may close over traced values."""
        return self.functions


@dataclass(eq=False)
class _Unknown:
    """The unknown of an equation: its structure and types, and the user's function of it as a jaxpr.

    jaxpr : [*params, *x] -> [*y], where the parameters are what the function closes over.
    """

    what: str
    name: str
    fun: Callable[[Any], Any]
    tree: pytree.TreeDef
    like: ad.Values
    likes: str
    checked: set[str] = field(default_factory=set)
    refused: TypeError | None = None
    aux_tree: pytree.TreeDef | None = None

    def __post_init__(self) -> None:
        args = pytree.tree_structure(((0,) * len(self.like), {}))
        self.flat = flat_function.FlatFunction(
            lambda *xs: self.fun(pytree.tree_unflatten(self.tree, xs)), args
        )
        avals = [x.aval.strong() for x in self.like]
        staged = trace.stage(self.flat, avals, flatten.function_name(self.fun), self.fun)
        self.check(self.name, self.fun, self.flat.out_tree, staged.jaxpr.out_avals)
        self.jaxpr, self.params = staged.jaxpr, staged.captured

    def check(self, name: str, fun: object, tree: pytree.TreeDef | None, avals: ir.Avals) -> None:
        """Raise unless the argument `name` has returned the structure and types of the unknown."""
        self.checked.add(name)
        called = f"{self.what}: expected {name}, {flatten.function_name(fun)}, to return what {self.likes} is"
        if tree != self.tree:
            self.refused = TypeError(f"{called}, {self.tree}, got {tree}")
            raise self.refused
        paths = pytree.leaf_paths(self.tree)
        for path, x, aval in zip(paths, self.like, avals, strict=True):
            if aval.strong() is not x.aval.strong():
                self.refused = TypeError(
                    f"{called}, {x.aval.strong()}, got {aval} for leaf {path or 'of it'}"
                )
                raise self.refused

    def check_now(self, name: str, solver: Callable[..., list[Value]]) -> None:
        """Raise if a solver that has not run yet returns something else: a trial tells, unless that fails by itself."""
        if name not in self.checked:
            trace.captured_by(solver, [x.aval.strong() for x in self.like])
        if self.refused is not None:
            raise self.refused

    def solver(self, solve: Solver, name: str, has_aux: bool = False) -> rules.Solver:
        """A user's solver on leaves."""

        def run(operator: rules.Operator, rhs: ad.Values) -> list[Value]:
            def of_tree(x: Any) -> Any:
                leaves, _ = flatten.flatten_values(
                    x, f"{self.what}: argument of the function solved for"
                )
                # A Python number takes the dtype of the unknown.
                typed = [
                    prims.convert(x, y.dtype) if x.weak_type and x.dtype != y.dtype else x
                    for x, y in zip(leaves, self.like, strict=True)
                ]
                return pytree.tree_unflatten(self.tree, operator(typed))

            out = solve(of_tree, pytree.tree_unflatten(self.tree, rhs))
            aux: Any = None
            if has_aux:
                if not isinstance(out, (tuple, list)) or len(out) != 2:
                    raise TypeError(
                        f"{self.what}: expected {name} to return a pair (solution, auxiliary) for has_aux, got "
                        f"{type(out).__name__}"
                    )
                out, aux = out
            leaves, tree = flatten.flatten_values(out, f"{self.what}: the result of {name}")
            self.check(name, solve, tree, [x.aval for x in leaves])
            aux_leaves, aux_tree = flatten.flatten_values(aux, f"{self.what}: the auxiliary result")
            if refs := [x for x in aux_leaves if x.aval.accumulates]:
                raise TypeError(
                    f"{self.what}: the auxiliary result of {name} is a Ref of type "
                    f"{refs[0].aval} that {flat_function.IN_RULE}"
                )
            if has_aux and name == "solve":
                self.aux_tree = aux_tree
            return [*leaves, *aux_leaves]

        return run

    def result(self, leaves: ad.Values) -> Any:
        """The user's result from its leaves."""
        n = len(self.like)
        leaves = [flatten.as_result(x) for x in leaves]
        solution = pytree.tree_unflatten(self.tree, leaves[:n])
        if self.aux_tree is None:
            return solution
        return solution, pytree.tree_unflatten(self.aux_tree, leaves[n:])
