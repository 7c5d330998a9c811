"""`cgr serve`: an OpenAI-compatible server that stops a model's thinking when it is certain. It decides nothing itself."""
