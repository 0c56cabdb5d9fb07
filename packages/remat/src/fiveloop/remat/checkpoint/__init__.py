"""`checkpoint`: a call whose residuals a policy chooses; what is not saved is computed again."""

from . import rules as rules
