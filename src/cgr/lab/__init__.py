"""The lab: questions -> traces -> probes -> decisions -> scores -> report. Only the first two arrows touch a model."""
