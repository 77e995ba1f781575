"""State of the recommender between rounds (upstream: ``pkg/recommender/model``)."""
