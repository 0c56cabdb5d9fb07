"""The IR: types, effects, jaxprs, and how they print; the printer is loaded with the rest."""

from fiveloop.core.ir import pretty
