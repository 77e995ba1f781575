"""A cluster that is simulated, in virtual time, behind the protocols of the live one."""
