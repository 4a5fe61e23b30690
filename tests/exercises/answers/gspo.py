"""Answers to the exercises on GSPO: wrong ones that are on nobody's list, and right ones by another route."""

UNLISTED: list = []
RIGHT: list = []
