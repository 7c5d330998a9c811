"""What report, compare and ablate share: tables, the style of figures, and where output goes."""
