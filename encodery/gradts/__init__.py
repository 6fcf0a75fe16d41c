"""GradTS: which tasks help a task. Importance of heads, correlation, ranking, trials, training."""
