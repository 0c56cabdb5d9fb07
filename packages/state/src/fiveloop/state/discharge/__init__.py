"""Discharge: effects turned into values, so that a program without Refs is left."""
