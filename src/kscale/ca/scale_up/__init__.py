"""Scale-up around the estimate: which groups are asked, how a plan is divided, carried out and reported."""
