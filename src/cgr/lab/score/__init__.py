"""Scores of decisions: accuracy, Grade, savings, calibration, and paired comparisons with intervals."""
