"""The models, by name: small pure losses of parameters and data, written once for every library."""

from benchmarks.remat.models import diffusion, experts, lstm, mixer, neural_ode, transformer, unet
from benchmarks.remat.models.base import KEPT as KEPT
from benchmarks.remat.models.base import Library as Library
from benchmarks.remat.models.base import Model as Model

MODELS: dict[str, Model] = {
    module.MODEL.name: module.MODEL
    for module in (transformer, lstm, mixer, unet, neural_ode, experts, diffusion)
}
