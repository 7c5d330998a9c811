"""The lab: questions -> traces -> probes -> decisions -> scores -> report. Only the first two steps need a model."""
