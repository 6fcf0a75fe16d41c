"""Checkpoints of other programs as transformers folders. The only room that may call torch.load (weights only)."""
