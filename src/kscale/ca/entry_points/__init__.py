"""Entry points: one loop, one scale-up or one scale-down, by today's rules or those of release 1.3."""
