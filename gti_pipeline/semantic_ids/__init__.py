"""Item vectors to unique semantic IDs: a residual-quantizing autoencoder and a minimum-cost assignment."""
