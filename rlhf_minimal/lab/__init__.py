"""Not needed to understand the algorithms: what makes training fast, works on several processes, or serves other tools."""
