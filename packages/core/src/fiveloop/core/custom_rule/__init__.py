"""`custom_rule`: a call with a derivative rule of its own."""

from . import erase as erase
from . import rules as rules
from .primitive import RuleParams as RuleParams
from .primitive import Rule as Rule
from .primitive import custom_rule_p as custom_rule_p
