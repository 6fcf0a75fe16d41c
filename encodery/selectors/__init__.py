"""Choosing training data: a pool in, an ordered list of ids out. One kind of selector, one file."""
