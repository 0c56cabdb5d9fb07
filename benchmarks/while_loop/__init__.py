"""Loops whose number of steps their own state decides: forward, taped, and with a bounded number of saved states."""
