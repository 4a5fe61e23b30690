"""What the core does not need: process rewards, rows that a model writes, a closer look at reward models."""
