"""Pictures: plain arrays in, matplotlib Axes out."""
