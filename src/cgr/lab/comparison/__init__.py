"""Every rule on the same traces: what each comes to over its main parameter, and which does best."""
