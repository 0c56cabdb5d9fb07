"""The transforms: one engine a file; each reads its column."""

from .batch import BatchTrace, BatchTracer, SAME, Same, axes_in_front, batch_flat, batch_jaxpr
from .batch import batch_jaxpr_at, batched_vars, in_front, move_batch, batch_directions
from .cost import LIGHT, OPEN, OPERATION, equation_cost, equation_time, gradient_time, jaxpr_cost
from .cost import jaxpr_time, mapping_time, operations_of, recomputation_time
from .dce import dce, needed_body, smaller, with_equations
from .eval import eval_jaxpr, happens_once, interpret, replayed
from .jvp import JvpTracer, jvp_flat, jvp_jaxpr, add_tangents, instantiate, nonzero_mask, with_zeros
from .jvp import nonzero_tangents, zero_like, zeros_of
from .linearize import Linear, PartialTrace, linearize_flat, linearize_jaxpr
from .partial_eval import Split, cut_once, split
from .policies import AllOf, Answer, AnyOf, Candidate, Complement, Composable, DEFAULT_PLAN
from .policies import EverythingSaveable, FirstOf, Labels, MinimumCut, NothingSaveable, Policy
from .policies import SAVE_EVERYTHING, SavingPlan, as_policy, labels_of, may_weigh
from .policies import policy_maker
from .residuals import Known, body_work, is_light_chain
from .transpose import add_into, backward_pass, elements_read, is_linear, parted, passed
from .transpose import transpose_jaxpr
from .typecheck import typecheck
from .weighted import as_products
