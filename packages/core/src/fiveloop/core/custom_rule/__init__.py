"""`custom_rule`: a call with a derivative rule of its own."""

from . import erase as erase, rules as rules
from .primitive import RuleParams as RuleParams, Rule as Rule, custom_rule_p as custom_rule_p
from .primitive import has_bwd as has_bwd
