"""Functions for neural networks: activations, softmax, norms, attention and initialisers."""

from . import initializers as initializers
from .activations import relu as relu
from .activations import relu6 as relu6
from .activations import leaky_relu as leaky_relu
from .activations import elu as elu
from .activations import selu as selu
from .activations import gelu as gelu
from .activations import erf as erf
from .activations import sigmoid as sigmoid
from .activations import silu as silu
from .activations import softplus as softplus
from .activations import log_sigmoid as log_sigmoid
from .activations import soft_sign as soft_sign
from .activations import hard_tanh as hard_tanh
from .activations import hard_sigmoid as hard_sigmoid
from .activations import hard_silu as hard_silu
from .activations import mish as mish
from .activations import glu as glu
from .attention import dot_product_attention as dot_product_attention
from .normalisation import softmax as softmax
from .normalisation import log_softmax as log_softmax
from .normalisation import logsumexp as logsumexp
from .normalisation import standardize as standardize
from .normalisation import layer_norm as layer_norm
from .normalisation import rms_norm as rms_norm
from .normalisation import one_hot as one_hot
from .activations import hard_swish as hard_swish
from .activations import swish as swish

from fiveloop.core.util import show_public_names as _show_public_names

_show_public_names(globals(), "initializers")
