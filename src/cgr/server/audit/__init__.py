"""A calibration in the server: which replies its promise covers, audits behind the replies, and what they show."""
