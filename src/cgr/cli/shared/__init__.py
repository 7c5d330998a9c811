"""What several commands share: options, the live display, and how a command ends."""
