"""Traces, tracers and staging."""
