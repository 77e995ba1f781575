"""Filter plug-ins, profiles, fit, placing pods one by one, equivalence groups, bounds."""
