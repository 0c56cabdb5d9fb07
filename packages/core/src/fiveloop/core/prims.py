"""The primitives and their functions, under the names that the rest of fiveloop uses; sines and so on: `special`."""

from .ir.avals import bytes_of
from .primitives.broadcast import BroadcastParams, ReshapeParams, TransposeParams, bdim_at
from .primitives.broadcast import broadcast_in_dim, broadcast_in_dim_p, broadcast_to, expand_dims
from .primitives.broadcast import fill_in, full, inverse, move_axis, of_linear, reduce_sum
from .primitives.broadcast import reduce_sum_p, reshape
from .primitives.broadcast import reshape_aval, reshape_p, restore_axes, squeeze, transpose
from .primitives.broadcast import transpose_p, zeros, zeros_of
from .primitives.check import array_aval, bad_type, bad_value, canonical_axes, canonical_axis
from .primitives.check import canonical_dtype, canonical_shape, check_count, common_shape
from .primitives.check import int_or_ints, known_int, refuse_traced
from .primitives.convert import convert, convert_p, counted, operand, promote
from .primitives.dot import dot_general, dot_general_p, matmul
from .primitives.elementwise import abs, add, bitwise_and, bitwise_and_p, bitwise_not, bitwise_or
from .primitives.elementwise import bitwise_xor, cbrt, ceil, clamp, clamp_p, complex, conj, div
from .primitives.elementwise import equal, exp, expm1, floor, floor_div, greater, greater_equal
from .primitives.elementwise import imag, is_finite, is_nan, less, less_equal, log, log1p, maximum
from .primitives.elementwise import minimum, mod, mul, neg, neg_p, nextafter, not_equal, pow, real
from .primitives.elementwise import reciprocal, rem, round, rsqrt, select, select_p, shift_left
from .primitives.elementwise import shift_right_arithmetic, shift_right_logical, sign, sqrt, square
from .primitives.elementwise import stop_gradient, sub, to_condition
from .primitives.family import add_p
from .primitives.monoids import MONOIDS, Monoid, changed_by, factor_of_share, winning_shares
from .primitives.ordering import ONE_MEMORY, MemoryParams, barrier, order, order_p, to_memory
from .primitives.ordering import to_memory_p
from .primitives.put import KINDS, element_numbers, put
from .primitives.reduce import argmax, argmin, reduce_and, reduce_max, reduce_min, reduce_or
from .primitives.reduce import reduce_prod
from .primitives.running import cummax, cummin, cumprod, cumsum
from .primitives.shape import ConcatenateParams, concatenate, concatenate_p, iota, pad, reverse
from .primitives.shape import split, stack
from .primitives.sort import argsort, sort, sort_together, top_k
from .primitives.take import PutParams, along, batched_index, check_index, common_index_dtype
from .primitives.take import index_dtype, place_of, put_p, resolve_index, resolve_index_p
from .primitives.take import static_slice, take, take_along, take_p
