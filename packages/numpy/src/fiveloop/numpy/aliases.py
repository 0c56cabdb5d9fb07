"""Other names of the same functions, NumPy's and those of the Array API standard."""

from fiveloop.numpy import arithmetic, elementwise, logic, manipulation, reductions

absolute = arithmetic.abs
true_divide = arithmetic.divide
mod = arithmetic.remainder
pow = arithmetic.power
acos = elementwise.arccos
acosh = elementwise.arccosh
asin = elementwise.arcsin
asinh = elementwise.arcsinh
atan = elementwise.arctan
atan2 = elementwise.arctan2
atanh = elementwise.arctanh
conjugate = elementwise.conj
radians = elementwise.deg2rad
degrees = elementwise.rad2deg
fix = elementwise.trunc
around = elementwise.round
bitwise_not = logic.bitwise_invert
invert = logic.bitwise_invert
bitwise_left_shift = logic.left_shift
bitwise_right_shift = logic.right_shift
concat = manipulation.concatenate
row_stack = manipulation.vstack
amax = reductions.max
amin = reductions.min
