"""The call path: what is asked once a signature, what is cached, and what users get."""

import threading
from collections.abc import Callable, Iterator
from typing import Any, Self

import numpy as np
import pytest

from fiveloop.core.backend import call, client, hlo
from fiveloop.core.backend.call import DictCall, Fast, Miss, Retargetable, fast_function
from fiveloop.core.backend.client import Aval, Buffer, Executable
from fiveloop.core.backend.tree import LEAF, TREE, register_container

F4 = np.dtype("f4")
Make = Callable[[Miss, tuple[int, ...], tuple[str, ...]], Callable[..., Any]]


class Box:
    """An array class, for when the backend is tested alone."""

    __slots__ = ("_a",)

    def __init__(self, buf: Buffer) -> None:
        self._a = buf


@pytest.fixture(autouse=True)
def box() -> Any:
    """The array class that is registered, which is core's own when core is imported."""
    if call.array_class() is None:
        call.register_array_class(Box, Box)
    return call.array_class()


def array(x: Any) -> Any:
    host = np.asarray(x, F4)
    return call.wrap_outputs(LEAF, [client.put(host, Aval(host.shape, F4))])


def read(x: Any) -> np.ndarray:
    return client.to_numpy(x._a)


def adding(shapes: list[tuple[int, ...]], amount: float) -> Executable:
    b = hlo.Builder()

    def body(xs: list[hlo.IRValue]) -> list[hlo.IRValue]:
        return [hlo.add(b, x, hlo.constant(b, amount, x.shape, F4)) for x in xs]

    b.function("main", [(s, F4) for s in shapes], public=True, body=body)
    return client.compile_text(b.text(), [Aval(s, F4) for s in shapes])


class Adder:
    """A `miss` that adds an amount to each leaf, and notes how often it was asked."""

    def __init__(self) -> None:
        self.asked = 0

    def __call__(self, tree: Any, amount: float = 1.0, **named: Any) -> tuple[Any, Fast | None]:
        self.asked += 1
        leaves, treedef = TREE.flatten((tree, named))
        out = TREE.flatten(tree if not named else (tree, named))[1]
        known = all(type(leaf) is call.array_class() for leaf in leaves)
        boxes = [leaf if type(leaf) is call.array_class() else array(leaf) for leaf in leaves]
        executable = adding([tuple(x._a.aval.shape) for x in boxes], amount)
        outs = executable.execute([x._a for x in boxes])
        assert treedef.num_leaves == out.num_leaves
        fast = call.make_fast(executable, len(boxes), out) if known else None
        return call.wrap_outputs(out, outs), fast


def by_pjit(miss: Miss, nums: tuple[int, ...] = (), names: tuple[str, ...] = ()) -> Any:
    return fast_function("f", lambda *a, **k: miss(*a, **k)[0], miss, nums, names)


def by_dict(miss: Miss, nums: tuple[int, ...] = (), names: tuple[str, ...] = ()) -> Any:
    return DictCall(miss, nums, names)


@pytest.fixture(params=[by_pjit, by_dict])
def make(request: pytest.FixtureRequest) -> Iterator[Make]:
    return request.param  # type: ignore[no-any-return]  # pytest does not type parameters


def test_a_signature_is_asked_for_once(make: Make) -> None:
    miss = Adder()
    f = make(miss, (), ())
    for k in range(4):
        out = f(array([k, 1]))
        assert type(out) is call.array_class()
        np.testing.assert_array_equal(read(out), [k + 1, 2])
    assert miss.asked == 1
    np.testing.assert_array_equal(read(f(array([[1.0]]))), [[2]])
    f(array([[5.0]]))
    assert miss.asked == 2


def test_trees_come_back_as_trees(make: Make) -> None:
    miss = Adder()
    f = make(miss, (), ())
    for k in range(3):
        out = f({"a": array(k), "b": [array([k]), None, (array([[k]]),)]})
        assert list(out) == ["a", "b"]
        assert out["b"][1] is None
        np.testing.assert_array_equal(read(out["b"][2][0]), [[k + 1]])
    assert miss.asked == 1
    f({"a": array(1)})
    assert miss.asked == 2


class Wrapping:
    """A container whose attribute has the name of an array's buffer."""

    def __init__(self, part: Any) -> None:
        self._a = part


register_container(Wrapping, lambda x: ((x._a,), None), lambda _, parts: Wrapping(*parts))


def deep(x: Any) -> Any:
    for _ in range(100):
        x = [x]
    return x


@pytest.mark.parametrize(
    "other",
    [
        lambda x: [[x], [x, x], {"a": x, "c": x}],
        lambda x: [x, [x, x, x], {"a": x, "c": x}],
        lambda x: [x, (x, x), {"a": x, "c": x}],
        lambda x: [x, [x, x], {"a": x, "b": x, "c": x}],
        lambda x: [x, [x, x], {"b": x, "c": x}],
        lambda x: [x, [x, None], {"a": x, "c": x}],
        lambda x: [x, [x, Wrapping(x)], {"a": x, "c": x}],
        lambda x: [x, [x, deep(x)], {"a": x, "c": x}],
        lambda x: [x, [array([1, 2]), x], {"a": x, "c": x}],
    ],
)
def test_the_dictionary_path_tells_structures_apart(other: Callable[[Any], Any]) -> None:
    miss = Adder()
    f = by_dict(miss)
    for k in range(3):
        x = array(k)
        for tree in ([x, [x, array(9)], {"c": x, "a": array(10)}], other(x)):
            given, structure = TREE.flatten(tree)
            leaves, found = TREE.flatten(f(tree))
            assert found == structure
            for y, z in zip(leaves, given, strict=True):
                np.testing.assert_array_equal(read(y), read(z) + 1)
    assert miss.asked == 2


def test_named_arguments_are_not_taken_for_a_dict(make: Make) -> None:
    asked = []
    executable = adding([()] * 2, 1.0)

    def miss(*args: Any, **kwargs: Any) -> tuple[Any, Fast]:
        asked.append((args, kwargs))
        out = TREE.flatten([args, kwargs])[1]
        buffers = [x._a for x in TREE.flatten((args, kwargs))[0]]
        outs = executable.execute(buffers)
        return call.wrap_outputs(out, outs), call.make_fast(executable, 2, out)

    f = make(miss, (), ())
    x = array(1)
    for _ in range(2):
        assert f((x,), {"y": x})[1] == {}
        assert list(f(x, y=x)[1]) == ["y"]
    assert len(asked) == 2


def test_named_arguments_are_part_of_the_signature(make: Make) -> None:
    miss = Adder()
    f = make(miss, (), ())
    for k in range(3):
        tree, named = f(array(k), y=array(10))
        assert (float(read(tree)), float(read(named["y"]))) == (k + 1, 11)
    assert miss.asked == 1
    f(array(1), z=array(10))
    assert miss.asked == 2


def test_what_is_not_an_array_is_asked_for_every_time(make: Make) -> None:
    miss = Adder()
    f = make(miss, (), ())
    for k in range(3):
        assert float(read(f(np.float32(k)))) == k + 1
    assert miss.asked == 3


@pytest.mark.parametrize(("nums", "names"), [((1,), ()), ((), ("amount",)), ((-1,), ())])
def test_static_arguments_are_told_apart(
    make: Make, nums: tuple[int, ...], names: tuple[str, ...]
) -> None:
    miss = Adder()
    f = make(miss, nums, names)
    x = array([1.0])
    for amount in (1.0, 2.0, 1.0, 2.0):
        out = f(x, amount=amount) if names else f(x, amount)
        np.testing.assert_array_equal(read(out), [1 + amount])
    assert miss.asked == 2


def test_static_values_of_different_types_differ(make: Make) -> None:
    seen: list[Any] = []
    executable = adding([(1,)], 1.0)

    def miss(x: Any, flag: Any) -> tuple[Any, Fast]:
        seen.append(flag)
        return x, call.make_fast(executable, 1, LEAF)

    f = make(miss, (1,), ())
    x = array([1.0])
    for flag in (1, True, 1.0, 1, True, 1.0):
        f(x, flag)
    assert [type(flag) for flag in seen] == [int, bool, float]


def test_hidden_constants_and_dropped_arguments(make: Make) -> None:
    executable = adding([(2,), (2,)], 0.0)
    hidden = array([7, 8])._a
    asked = 0

    def miss(x: Any, unused: Any) -> tuple[Any, Fast]:
        nonlocal asked
        asked += 1
        tree = TREE.flatten([0, 0])[1]
        kept = [True, True, False]
        fast = call.make_fast(executable, 2, tree, consts=[hidden], kept=kept)
        return call.wrap_outputs(tree, executable.execute([hidden, x._a])), fast

    f = make(miss, (), ())
    for k in range(3):
        const, out = f(array([k, k]), array(0))
        np.testing.assert_array_equal(read(const), [7, 8])
        np.testing.assert_array_equal(read(out), [k, k])
    assert asked == 1


def test_an_error_in_the_first_call_does_not_stick(make: Make) -> None:
    inner = Adder()
    broken = True

    def miss(x: Any) -> tuple[Any, Fast | None]:
        if broken:
            raise ValueError("the user's mistake")
        return inner(x)

    f = make(miss, (), ())
    x = array(1)
    with pytest.raises(ValueError, match="the user's mistake"):
        f(x)
    broken = False
    assert [float(read(f(x))) for _ in range(3)] == [2, 2, 2]


def test_a_deleted_argument_is_refused(make: Make) -> None:
    f = make(Adder(), (), ())
    x = array(1)
    f(x)
    x._a.delete()
    with pytest.raises(RuntimeError):
        f(x)


def test_the_dictionary_path_names_the_deleted_argument() -> None:
    f = DictCall(Adder())
    x, y = array(1), array([2])
    f([x, y])
    y._a.delete()
    with pytest.raises(RuntimeError, match=r"argument 1, float32\[1\], was deleted or donated"):
        f([x, y])


def test_many_threads_share_a_function(make: Make) -> None:
    f = make(Adder(), (), ())
    results: list[float] = []

    def work(k: int) -> None:
        for _ in range(20):
            results.append(float(read(f(array(k)))) - k)

    threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [1.0] * 80


def test_functions_of_one_name_and_body_are_kept_apart() -> None:
    one, two = Adder(), Adder()
    f, g = fast_function("f", abs, one), fast_function("f", abs, two)
    f(array(1))
    g(array(1))
    assert (one.asked, two.asked) == (1, 1)


def test_the_cpp_function_behaves_as_a_method_and_forgets_when_asked() -> None:
    miss = Adder()
    f = fast_function("f", lambda x: x, miss)

    class Holder:
        run = f

    Holder.run(array(1))
    assert f._cache_size() == 1
    f._clear_cache()
    f(array(1))
    assert miss.asked == 2


def test_a_callable_is_given_another_target() -> None:
    class Named(Retargetable):
        def __init__(self, target: Callable[..., Any], name: str) -> None:
            self.name = name

        def __new__(cls, target: Callable[..., Any], name: str) -> Self:
            return super().__new__(cls, target)

    f = Named(max, "f")
    assert f(1, 2) == 2
    assert f([1, 2], key=lambda x: -x) == 1
    f.retarget(min)
    assert (f(1, 2), f.name) == (1, "f")


def test_flags_for_dropped_arguments_are_counted() -> None:
    with pytest.raises(ValueError, match="kept: expected 1 flags, got 2"):
        call.make_fast(adding([()], 0.0), 1, LEAF, kept=[True, True])


def test_only_one_array_class() -> None:
    with pytest.raises(RuntimeError, match=r"the array class is .* already"):
        call.register_array_class(Box, Box)
