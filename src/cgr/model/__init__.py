"""The embedded model: its weights, and the problems that it was trained on."""
