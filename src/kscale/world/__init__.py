"""How the world is observed and acted on: protocols, and the adapters behind them. No rule stands here."""
