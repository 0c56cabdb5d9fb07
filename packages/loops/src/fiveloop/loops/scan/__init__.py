"""`scan` and its kin: functions over `for`."""
