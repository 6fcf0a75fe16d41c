"""Checkpoints of other programs as transformers folders. The only package that may call torch.load (weights only)."""
