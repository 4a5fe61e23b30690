"""Not needed to understand the algorithms: what makes training fast, shares it, or serves other tools."""
