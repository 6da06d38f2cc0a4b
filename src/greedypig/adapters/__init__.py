"""Other people's interfaces, thin."""
