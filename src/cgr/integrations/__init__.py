"""Parts that other programs load: each module here is for one program and imports it."""
