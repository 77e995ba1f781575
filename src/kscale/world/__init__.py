"""The outside world of the drivers: protocols to observe and change it, and the adapters behind them."""
