"""Adapters that hand the events of runs (metrics.jsonl, scores.json) on to trackers; one file each, an extra each."""
