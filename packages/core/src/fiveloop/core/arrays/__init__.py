"""Arrays: values, their attributes and dtypes, and the sharing of buffers."""

from .array import Array, ArrayLike, Concrete, Fixed, OPERATORS, OPS, Scalar, Value, as_value
from .array import copied, device_put, of_buffer, setter, to_array
from .methods import METHODS, InplaceNote, Methods
from .promotion import DType, Typed, check_narrowing, complex_dtype, dtype_kind, float_limits
from .promotion import host_scalar, is_python_number, join, partner, python_number, python_typed
from .promotion import real_dtype, to_inexact, wide_for_sums
from .sharing import Turn, note_sharer, part_from
