"""Every StableHLO operation, in one place to import: `from ..backend import hlo`.

Here are the functions of each element; `hlo_builder` holds the module builder, constants and control flow,
`hlo_elementwise` the arithmetic that other operations are made of, and `hlo_arrays` the operations on whole arrays.

Some names (`abs`, `max`, `pow`, `complex`) hide Python's own in this file; elsewhere import the module `hlo` and write
`hlo.max`.
"""

import numpy as np
from numpy.typing import DTypeLike

from .hlo_arrays import broadcast_in_dim as broadcast_in_dim, concatenate as concatenate
from .hlo_arrays import dot_general as dot_general, dynamic_slice as dynamic_slice
from .hlo_arrays import dynamic_update_slice as dynamic_update_slice, gather as gather, iota as iota
from .hlo_arrays import pad as pad, reduce as reduce, reduce_generic as reduce_generic
from .hlo_arrays import reduce_window as reduce_window, reshape as reshape, reverse as reverse
from .hlo_arrays import scatter as scatter, slice as slice, slice_or_zero as slice_or_zero
from .hlo_arrays import sort as sort, top_k as top_k, transpose as transpose
from .hlo_arrays import update_inside as update_inside, zero_outside as zero_outside
from .hlo_builder import ONE_KERNEL as ONE_KERNEL, Builder as Builder
from .hlo_builder import IRValue as IRValue, IRValues as IRValues
from .hlo_builder import Region as Region, TypeSpec as TypeSpec, as_stored as as_stored
from .hlo_builder import case as case, constant as constant, custom_call as custom_call
from .hlo_builder import element_type as element_type, generic as generic, if_ as if_
from .hlo_builder import int_array as int_array, int_list as int_list
from .hlo_builder import optimization_barrier as optimization_barrier, tensor_type as tensor_type
from .hlo_builder import room_before_loops as room_before_loops, to_memory as to_memory
from .hlo_builder import while_ as while_
from .hlo_elementwise import BOOL, binary, real_part, require_same_type, unary
from .hlo_elementwise import COMBINERS as COMBINERS, Binary as Binary, Unary as Unary, add as add
from .hlo_elementwise import and_ as and_, clamp as clamp, compare as compare, identity as identity
from .hlo_elementwise import imag as imag, max as max, min as min, mul as mul, neg as neg
from .hlo_elementwise import or_ as or_, real as real, select as select, sub as sub


def _chlo(name: str) -> Unary:
    def write(b: Builder, x: IRValue, /) -> IRValue:
        return b.emit(f"chlo.{name} {x.name} : {x.type} -> {x.type}", x.shape, x.dtype)

    write.__name__ = name
    return write


def _chlo_of_two(name: str) -> Binary:
    def write(b: Builder, x: IRValue, y: IRValue, /) -> IRValue:
        return generic(b, f"chlo.{name}", [x, y], [(x.shape, x.dtype)])[0]

    write.__name__ = name
    return write


exp = unary("exponential")
expm1 = unary("exponential_minus_one")
log = unary("log")
log1p = unary("log_plus_one")
sqrt = unary("sqrt")
rsqrt = unary("rsqrt")
cbrt = unary("cbrt")
tanh = unary("tanh")
sin = sine = unary("sine")
cos = cosine = unary("cosine")
tan = unary("tan")
logistic = unary("logistic")
ceil = unary("ceil")
floor = unary("floor")
round_nearest_even = unary("round_nearest_even")
round_nearest_afz = unary("round_nearest_afz")
not_ = unary("not")
popcnt = unary("popcnt")
count_leading_zeros = unary("count_leading_zeros")
erf = _chlo("erf")
erfc = _chlo("erfc")
erf_inv = _chlo("erf_inv")
lgamma = _chlo("lgamma")
digamma = _chlo("digamma")
next_after = _chlo_of_two("next_after")
polygamma = _chlo_of_two("polygamma")
asin = _chlo("asin")
acos = _chlo("acos")
atan = _chlo("atan")
sinh = _chlo("sinh")
cosh = _chlo("cosh")
asinh = _chlo("asinh")
acosh = _chlo("acosh")
atanh = _chlo("atanh")
div = binary("divide")
rem = binary("remainder")
atan2 = binary("atan2")
xor = binary("xor")
shift_left = binary("shift_left")
shift_right_logical = binary("shift_right_logical")
shift_right_arithmetic = binary("shift_right_arithmetic")

_abs = real_part("abs")
_sign = unary("sign")
_pow = binary("power")
_EXPONENT_BITS = 6


def complex_dtype(dtype: np.dtype) -> np.dtype:
    """The complex dtype whose parts have this dtype."""
    return np.dtype(np.complex64 if dtype == np.float32 else np.complex128)


def abs(b: Builder, x: IRValue) -> IRValue:
    """The magnitude; that of a complex number is real."""
    return x if x.dtype.kind in "ub" else _abs(b, x)


def sign(b: Builder, x: IRValue) -> IRValue:
    """-1, 0 or 1; a complex number gives itself divided by its magnitude."""
    return min(b, x, constant(b, 1, x.shape, x.dtype)) if x.dtype.kind in "ub" else _sign(b, x)


def floor_div(b: Builder, x: IRValue, y: IRValue) -> IRValue:
    """The greatest integer not above the quotient of integers; 0 where `y` is 0."""
    quotient = div(b, x, y)
    if x.dtype.kind == "i":  # division goes towards zero
        quotient = sub(b, quotient, convert(b, _crosses(b, rem(b, x, y), y), x.dtype))
    zero = constant(b, 0, y.shape, y.dtype)
    return select(b, compare(b, y, zero, "EQ"), zero, quotient)


def mod(b: Builder, x: IRValue, y: IRValue) -> IRValue:
    """What `floor_div` leaves of integers, with the sign of `y`; 0 where `y` is 0."""
    zero, one = (constant(b, n, y.shape, y.dtype) for n in (0, 1))
    left = rem(b, x, select(b, compare(b, y, zero, "EQ"), one, y))  # of one 0 is left
    return select(b, _crosses(b, left, y), add(b, left, y), left) if x.dtype.kind == "i" else left


def _crosses(b: Builder, left: IRValue, y: IRValue) -> IRValue:
    """Whether a remainder is on the other side of zero than the divisor."""
    zero = constant(b, 0, y.shape, y.dtype)
    above, below = compare(b, left, zero, "GT"), compare(b, left, zero, "LT")
    return select(b, compare(b, y, zero, "LT"), above, below)


def pow(b: Builder, x: IRValue, y: IRValue) -> IRValue:
    """`x` to the power of `y`. XLA uses six bits of an integer exponent: others count where an element has them."""
    if y.dtype.kind not in "iu":
        return _pow(b, x, y)
    most = constant(b, 2**_EXPONENT_BITS - 1, (), y.dtype)
    is_large = compare(b, reduce(b, y, range(len(y.shape)), "max"), most, "GT")
    result = [(x.shape, x.dtype)]
    return if_(b, is_large, lambda: [_pow_by_all_bits(b, x, y)], lambda: [_pow(b, x, y)], result)[0]


def _pow_by_all_bits(b: Builder, x: IRValue, y: IRValue) -> IRValue:
    """The power by the lowest six bits times those by the others, which are powers of `x**64`."""
    zero, lowest, step = (
        constant(b, n, y.shape, y.dtype) for n in (0, 2**_EXPONENT_BITS - 1, _EXPONENT_BITS)
    )
    out = _pow(b, x, select(b, compare(b, y, zero, "LT"), y, and_(b, y, lowest)))
    rest = max(b, y, zero)
    for _ in range(_EXPONENT_BITS, np.iinfo(y.dtype).bits, _EXPONENT_BITS):
        for _ in range(_EXPONENT_BITS):
            x = mul(b, x, x)
        rest = shift_right_logical(b, rest, step)
        out = mul(b, out, _pow(b, x, and_(b, rest, lowest)))
    return out


def is_finite(b: Builder, x: IRValue) -> IRValue:
    """True where a float is neither infinite nor NaN."""
    return b.emit_typed(f"stablehlo.is_finite {x.name}", [x], x.shape, BOOL)


def complex(b: Builder, re: IRValue, im: IRValue) -> IRValue:
    """A complex array from its real and imaginary parts."""
    require_same_type("complex", re, im)
    dtype = complex_dtype(re.dtype)
    out = tensor_type(re.shape, dtype)
    return b.emit(f"stablehlo.complex {re.name}, {im.name} : {out}", re.shape, dtype)


def convert(b: Builder, x: IRValue, dtype: DTypeLike) -> IRValue:
    """`x` in another dtype; complex to real keeps the real part."""
    out = np.dtype(dtype)
    if out == x.dtype:
        return x
    if x.dtype.kind == "c" and out.kind != "c":
        return convert(b, real(b, x), out)
    return b.emit_typed(f"stablehlo.convert {x.name}", [x], x.shape, out)


def bitcast_convert(b: Builder, x: IRValue, dtype: DTypeLike) -> IRValue:
    """The bits of `x` read as another dtype; a width ratio adds or removes a last axis."""
    out = np.dtype(dtype)
    shape = x.shape
    if x.dtype.itemsize > out.itemsize:
        shape = (*shape, x.dtype.itemsize // out.itemsize)
    elif x.dtype.itemsize < out.itemsize:
        if not shape or shape[-1] * x.dtype.itemsize != out.itemsize:
            raise TypeError(f"hlo bitcast_convert: the last axis of {x.type} does not fill {out}")
        shape = shape[:-1]
    return b.emit_typed(f"stablehlo.bitcast_convert {x.name}", [x], shape, out)
