"""The lease challenge in virtual time, and beside it the faithful one."""
