"""The figures, a few to a file. Each is a function from a `View` to a matplotlib figure, registered with what it needs."""
