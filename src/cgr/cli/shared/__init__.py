"""What several commands share: options, arguments, and how a command ends."""
